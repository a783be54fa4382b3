"""A step's plan in the making."""

from surefoot.core import BlockCopy, Chunk
from surefoot.kv import BlockKey, Node
from surefoot.scheduler.sample import Sample

# A named tuple made without its call, in half the time: there are two for every sample that runs, in every step.
make = tuple.__new__


class Step:
    """Chunks so far, and who gave way or is computing what for it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.chunks: list[Chunk] = []
        self.samples: list[Sample] = []  # of the chunks
        self.copies: list[BlockCopy] = []
        self.preempted: set[Sample] = set()
        self.filling: set[tuple[Node, str | None, BlockKey]] = set()  # blocks that some chunk of this step fills
        self.victims: list[Sample] | None = None  # who gives way first comes last
        self.eldest: Sample | None = None  # of those who run; gives way to nobody
        self.num_tokens = 0
        self.num_before = 0  # tokens before each token of a prompt, all together
        self.is_urgent = False  # whether a chunk is of an urgent prompt

    def add(self, sample: Sample, chunk: Chunk) -> None:
        self.samples.append(sample)
        self.chunks.append(chunk)
        self.num_tokens += len(chunk.tokens)
        self.num_before += chunk.start * len(chunk.tokens)

    def drop_preempted(self) -> None:
        """Chunks of those who gave way after they were planned."""
        if self.preempted:
            kept = [pair for pair in zip(self.samples, self.chunks, strict=True) if pair[0] not in self.preempted]
            self.samples, self.chunks = [sample for sample, _ in kept], [chunk for _, chunk in kept]
            self.num_tokens = sum(len(chunk.tokens) for chunk in self.chunks)
