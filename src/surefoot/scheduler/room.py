"""Blocks for samples: what they find computed, what they take, and whether there is enough."""

from surefoot.kv import KvManager, Node
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.rows import Rows
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.step import Step


class Room:
    def __init__(self, config: SchedulerConfig, kv: KvManager, rows: Rows) -> None:
        self._config = config
        self._kv = kv
        self._rows = rows

    def match(self, sample: Sample) -> list[Node]:
        """What is computed of its next blocks."""
        return self._kv.match(sample.holding, sample.known_keys(self._kv.layout.block_size))

    def adopt(self, sample: Sample) -> None:
        """What it finds beyond what it had computed itself, before it gave way, is a gain."""
        self._kv.adopt(sample.holding, sample.known_keys(self._kv.layout.block_size))
        gain = max(0, sample.num_computed - sample.num_charged)
        sample.num_cached += gain
        sample.num_charged += gain

    def grow(self, step: Step, sample: Sample, num_tokens: int) -> bool:
        copies = self._kv.extend(sample.holding, num_tokens)
        if copies is None:
            return False
        step.copies += copies
        sample.room = sample.holding.num_blocks * self._kv.layout.block_size
        return True

    def advance(self, sample: Sample, num_computed: int) -> None:
        """So many tokens are computed: tell the blocks."""
        if sample.state is State.ENDED:
            return
        num_computed = min(num_computed, len(sample.tokens))
        self._kv.commit(sample.holding, num_computed, sample.full_keys(self._kv.layout.block_size))
        if sample.state is State.DECODING:
            # Then the next token changes its blocks, or the one after it is the last.
            sample.plain_until = min(self._kv.next_change(num_computed) - 1, sample.end - 2)

    def release(self, sample: Sample) -> None:
        """All its blocks, as at the end; the full ones stay in the tree, so that the return is cheap."""
        self._kv.release(sample.holding)
        sample.room = sample.plain_until = 0

    def is_enough(self, sample: Sample, nodes: list[Node] | None = None) -> bool:
        """For its prompt and some output, beside what those who run will want. nodes: what it finds computed."""
        nodes = self.match(sample) if nodes is None else nodes
        num_tokens, num_samples = len(sample.tokens), len(sample.covers)
        num_new = max(1, min(self._config.headroom_tokens, sample.end - num_tokens))
        price = self._kv.layout.price(num_tokens, num_new, num_samples, self._config.max_chunk)
        return self._kv.has_room(sample.holding, nodes, price, self._reserved())

    def _reserved(self) -> list[int]:
        """Blocks of each group that those who run will want soon: for the rest of their prompts, and to decode into."""
        layout, reserved = self._kv.layout, [len(self._rows.decoding) // 2] * len(self._kv.pools)
        for sample in self._rows.prefilling:
            prices = layout.price(len(sample.tokens), 1, 1, self._config.max_chunk)
            for number, price in enumerate(prices):
                held = sample.holding.num_blocks - sample.holding.firsts[number]
                reserved[number] += max(0, price - held)
        return reserved
