"""Executes chunks of requests: fills a batch's arrays, replays the recorded pass of that shape, samples."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.models import Batch, Model, Workspace, empty_batch
from surefoot.ops import Backend, KvForm, Program, Sampled, SamplingRows, sample
from surefoot.ops.arrays import F32, I64
from surefoot.runner.kv_store import KvStore

MAX_PROGRAMS = 32


@dataclass(eq=False)
class Request:
    """One request's tokens in the caches: how many, and in which blocks (by window)."""

    tables: dict[int, I64]
    max_tokens: int
    num_tokens: int = 0


@dataclass(frozen=True)
class Work:
    """One request's chunk in a step. Logits are wanted of its last `num_logits` tokens."""

    request: Request
    tokens: Sequence[int]
    num_logits: int = 1


@dataclass(frozen=True)
class Prepared:
    """A pass over arrays of one shape: recorded once, replayed whenever that shape comes again."""

    batch: Batch
    logits: F32
    program: Program


@dataclass
class Runner:
    """record=False calls operation by operation, as a float model of experts must."""

    backend: Backend
    model: Model
    num_tokens: int  # room for so many, over all requests
    max_requests: int = 8
    max_chunk: int = 512  # of one request in one step
    kv_form: KvForm = KvForm.KEYS_TWO_LIMBS
    record: bool = True
    block_size: int = 64
    num_blocks: Mapping[int, int] | None = None  # by window, where somebody else hands them out
    kv: KvStore = field(init=False)
    native_seconds: float = field(default=0.0, init=False)  # in recorded passes, in all

    def __post_init__(self) -> None:
        self.kv = KvStore(
            self.backend, self.model.config, self.num_tokens, self.max_requests, self.max_chunk, self.kv_form,
            self.block_size, self.num_blocks,
        )  # fmt: skip
        self._workspace = Workspace()
        self._prepared: OrderedDict[tuple[int, int, int], Prepared] = OrderedDict()

    def open(self, max_tokens: int) -> Request:
        return Request(self.kv.reserve(max_tokens), max_tokens)

    def close(self, request: Request) -> None:
        self.kv.release(request.tables)

    # ---- a step ----

    def execute(self, works: Sequence[Work]) -> F32:
        """Logits of the wanted rows, in the works' order; they stay until the next step."""
        self._check(works)
        rows, wanted = sum(len(work.tokens) for work in works), sum(work.num_logits for work in works)
        logits = self._run(works, rows, wanted) if self.record else self._call(works, rows, wanted)
        for work in works:
            work.request.num_tokens += len(work.tokens)
        return logits

    def _run(self, works: Sequence[Work], rows: int, num_wanted: int) -> F32:
        prepared = self._prepare(rows, len(works), num_wanted)
        self._fill(prepared.batch, works)
        start = time.perf_counter()
        prepared.program.run()
        self.native_seconds += time.perf_counter() - start
        return prepared.logits

    def _call(self, works: Sequence[Work], rows: int, num_wanted: int) -> F32:
        batch = self._empty_batch(rows, len(works), num_wanted)
        self._fill(batch, works)
        return self.model.forward(self.backend, batch, self.kv.caches, self._workspace)

    def _check(self, works: Sequence[Work]) -> None:
        if len({id(work.request) for work in works}) < len(works):
            raise ValueError("a request can have one chunk in a step")
        for work in works:
            count, request = len(work.tokens), work.request
            if not 0 < count <= self.max_chunk or not 0 <= work.num_logits <= count:
                raise ValueError(f"a chunk has 1 to {self.max_chunk} tokens and logits of some of them, not {count}")
            if request.num_tokens + count > request.max_tokens:
                raise ValueError(f"the request was opened for {request.max_tokens} tokens, which is passed")
            if not 0 <= min(work.tokens) <= max(work.tokens) < self.model.config.vocab_size:
                raise ValueError(f"token ids must lie in [0, {self.model.config.vocab_size})")

    def _prepare(self, rows: int, num_chunks: int, num_wanted: int) -> Prepared:
        shape = (rows, num_chunks, num_wanted)
        if shape not in self._prepared:
            self._prepared[shape] = self._record(*shape)
            if len(self._prepared) > MAX_PROGRAMS:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(shape)
        return self._prepared[shape]

    def _record(self, rows: int, num_chunks: int, num_wanted: int) -> Prepared:
        batch = self._empty_batch(rows, num_chunks, num_wanted)
        with self.backend.record() as program:
            logits = self.model.forward(self.backend, batch, self.kv.caches, self._workspace)
        return Prepared(batch, logits, program)

    def _empty_batch(self, rows: int, num_chunks: int, num_wanted: int) -> Batch:
        widths = dict.fromkeys(self.model.config.windows, self.kv.table_width)
        return empty_batch(rows, num_chunks, num_wanted, widths)

    def _fill(self, batch: Batch, works: Sequence[Work]) -> None:
        start, wanted = 0, 0
        for number, work in enumerate(works):
            count, before = len(work.tokens), work.request.num_tokens
            rows = slice(start, start + count)
            batch.tokens[rows] = work.tokens
            batch.positions[rows] = positions = np.arange(before, before + count)
            batch.wanted[wanted : wanted + work.num_logits] = np.arange(start + count - work.num_logits, start + count)
            for window, kv in batch.kv.items():
                table = work.request.tables[window]
                block, place = np.divmod(positions, self.kv.block_size)
                kv.slots[rows] = table[block] * self.kv.block_size + place
                kv.chunks.block_table[number] = table
                kv.chunks.starts[number + 1] = start + count
                kv.chunks.lengths[number] = before + count
            start, wanted = start + count, wanted + work.num_logits

    # ---- one or several requests to the end ----

    def prefill(self, request: Request, tokens: Sequence[int], chunks: Iterable[int] | None = None) -> F32:
        """Logits of the last token, the prompt taken in chunks of the given lengths (or of the largest)."""
        lengths = iter(chunks) if chunks is not None else iter(lambda: self.max_chunk, 0)
        start, logits = 0, None
        while start < len(tokens):
            end = min(start + min(next(lengths, self.max_chunk), self.max_chunk), len(tokens))
            logits = self.execute([Work(request, tokens[start:end], int(end == len(tokens)))])
            start = end
        if logits is None:
            raise ValueError("a prompt has at least one token")
        return logits

    def decode(self, requests: Sequence[Request], tokens: Sequence[int]) -> F32:
        """One more token of each request: logits [requests, vocab]."""
        return self.execute([Work(request, [token]) for request, token in zip(requests, tokens, strict=True)])

    def sample(self, logits: F32, rows: SamplingRows | None = None) -> Sampled:
        """The next tokens; greedy if nothing is said."""
        return sample(self.backend, logits, rows or SamplingRows.of(len(logits)))

    def generate(self, tokens: Sequence[int], num_new: int, stop: Iterable[int] = ()) -> list[int]:
        """The prompt's greedy continuation, up to and without a token of `stop`."""
        request = self.open(len(tokens) + num_new)
        stops, new = set(stop), list[int]()
        logits = self.prefill(request, tokens)
        while (token := int(self.sample(logits).tokens[0])) not in stops:
            new.append(token)
            if len(new) == num_new:
                break
            logits = self.decode([request], [token])
        self.close(request)
        return new
