"""Executes chunks of requests: fills a batch's arrays, replays the recorded pass at the batch's shape, samples."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import gt
from typing import NamedTuple

import numpy as np

from surefoot.models import WANTED, Batch, Model, Workspace, empty_batch
from surefoot.ops import (
    Backend,
    Chunks,
    KvForm,
    Program,
    Sampled,
    SamplingRows,
    Shape,
    ShapedProgram,
    ShapeError,
    sample,
)
from surefoot.ops.arrays import F32, I64
from surefoot.runner.kv_store import KvStore

MAX_PROGRAMS = 32
LEAST_CAPACITY = (16, 4, 4)  # rows, chunks, wanted rows


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


class Flat(NamedTuple):
    """A step's chunks side by side.

    tokens: of all chunks. befores, counts: how many tokens each chunk's request has in the caches, and how many come.
    num_logits: of each chunk's last tokens. tables: by window, [chunks, blocks]; other arrays if they have changed.
    """

    tokens: Sequence[int]
    befores: Sequence[int]
    counts: Sequence[int]
    num_logits: Sequence[int]
    tables: Mapping[int, I64]

    @property
    def shape(self) -> Shape:
        """Rows, chunks, wanted rows."""
        return len(self.tokens), len(self.counts), sum(self.num_logits)


class Passes:
    """A model's pass for steps of any shape up to a capacity: recorded once, and again only for larger steps.

    A family whose pass needs arrays that depend on the shape is recorded for each shape by itself.
    """

    def __init__(self, backend: Backend, model: Model, kv: KvStore, workspace: Workspace, capacity: Shape) -> None:
        self._backend, self._model, self._kv, self._workspace = backend, model, kv, workspace
        self.capacity = capacity
        self._batch = make_batch(model, kv, capacity)
        self._places: Places | None = None  # of the last step
        self._layout: tuple[Sequence[int], Sequence[int]] = ((), ())
        self._programs: dict[bool, ShapedProgram] = {}
        self._single: OrderedDict[Shape, Program] = OrderedDict()
        _, self._logits = self._forward(capacity)
        try:
            # Without logits there is no head: another program.
            for largest in (capacity, (*capacity[:2], 0)):
                self._programs[largest[2] > 0] = ShapedProgram(backend, self._record, largest)
        except ShapeError:
            self._programs.clear()

    def run(self, flat: Flat) -> F32:
        """Logits of the wanted rows; they stay until the next pass."""
        shape, layout = flat.shape, (flat.counts, flat.num_logits)
        if self._places is None or layout != self._layout:
            self._places, self._layout = Places(part_of(self._batch, shape), *layout), layout
        self._places.fill(flat, self._kv.block_size)
        if program := self._programs.get(shape[2] > 0):
            program.run(shape)
        else:
            self._find(shape).run()
        return self._logits[: shape[2]]

    def _find(self, shape: Shape) -> Program:
        if shape not in self._single:
            self._single[shape] = self._record(shape)
            if len(self._single) > MAX_PROGRAMS:
                self._single.popitem(last=False)
        self._single.move_to_end(shape)
        return self._single[shape]

    def _record(self, shape: Shape) -> Program:
        return self._forward(shape)[0]

    def _forward(self, shape: Shape) -> tuple[Program, F32]:
        with self._backend.record() as program:
            batch = part_of(self._batch, shape)  # the first rows of arrays that stay where they are
            logits = self._model.forward(self._backend, batch, self._kv.caches, self._workspace)
        return program, logits


def make_batch(model: Model, kv: KvStore, shape: Shape) -> Batch:
    rows, num_chunks, num_wanted = shape
    return empty_batch(rows, num_chunks, num_wanted, dict.fromkeys(model.config.windows, kv.table_width))


def part_of(batch: Batch, shape: Shape) -> Batch:
    rows, num_chunks, num_wanted = shape
    kv = {
        window: replace(
            one,
            slots=one.slots[:rows],
            chunks=Chunks(
                one.chunks.starts[: num_chunks + 1],
                one.chunks.lengths[:num_chunks],
                one.chunks.block_table[:num_chunks],
            ),
        )
        for window, one in batch.kv.items()
    }
    return Batch(batch.tokens[:rows], batch.positions[:rows], batch.wanted[:num_wanted], kv)


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

    def __post_init__(self) -> None:
        self.kv = KvStore(
            self.backend, self.model.config, self.num_tokens, self.max_requests, self.max_chunk, self.kv_form,
            self.block_size, self.num_blocks,
        )  # fmt: skip
        self._workspace = Workspace()
        self._scoring = Workspace()  # for logits besides those that a step wants
        self._passes: Passes | None = None

    def prepare(self, *shape: int) -> None:
        """Record for steps of up to so many rows, chunks and wanted rows, which would else be done step by step."""
        if self.record:
            self._passes_for(shape)

    def open(self, max_tokens: int) -> Request:
        return Request(self.kv.reserve(max_tokens), max_tokens)

    def close(self, request: Request) -> None:
        self.kv.release(request.tables)

    # ---- a step ----

    def execute(self, works: Sequence[Work]) -> F32:
        """Logits of the wanted rows, in the works' order; they stay until the next step."""
        self._check(works)
        tables = {w: np.stack([work.request.tables[w] for work in works]) for w in self.model.config.windows}
        flat = Flat(
            [token for work in works for token in work.tokens],
            [work.request.num_tokens for work in works],
            [len(work.tokens) for work in works],
            [work.num_logits for work in works],
            tables,
        )
        logits = self.forward(flat)
        for work in works:
            work.request.num_tokens += len(work.tokens)
        return logits

    def forward(self, flat: Flat) -> F32:
        """As execute, for who keeps the books."""
        if not self.record:
            batch = make_batch(self.model, self.kv, flat.shape)
            Places(batch, flat.counts, flat.num_logits).fill(flat, self.kv.block_size)
            return self.model.forward(self.backend, batch, self.kv.caches, self._workspace)
        return self._passes_for(flat.shape).run(flat)

    def normed(self, first: int, count: int) -> F32:
        """Hidden states of rows of the last step, after the last norm."""
        return self.model.normed(self.backend, self._workspace, first, count)

    def logits(self, first: int, count: int) -> F32:
        """Of any rows of the last step; they stay until this is called again."""
        return self.model.logits_of(self.backend, self._workspace, first, count, self._scoring)

    def hidden(self, num_rows: int) -> F32:
        """Behind the last layer, of the rows whose logits the last step wanted; they stay until the next."""
        return self._workspace.floats(WANTED, num_rows, self.model.config.width)

    def _passes_for(self, shape: Shape) -> Passes:
        before = self._passes.capacity if self._passes is not None else LEAST_CAPACITY
        if self._passes is None or any(map(gt, shape, before)):
            capacity = tuple(1 << (size - 1).bit_length() for size in map(max, shape, before))
            self._passes = Passes(self.backend, self.model, self.kv, self._workspace, capacity)
        return self._passes

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


class Places:
    """Where the rows of chunks of so many tokens lie in a batch, with their wanted rows: what stays from step to step
    while the same number of requests decode."""

    def __init__(self, batch: Batch, counts: Sequence[int], num_logits: Sequence[int]) -> None:
        self._batch = batch
        self._counts = np.array(counts, np.int64)
        ends = np.cumsum(self._counts)
        self._chunk_of = np.repeat(np.arange(len(counts)), self._counts)
        self._tables: dict[int, I64] = {}  # that the batch holds
        self._within = np.arange(len(batch.tokens)) - (ends - self._counts)[self._chunk_of]
        batch.wanted[:] = last_rows(ends, num_logits)
        for kv in batch.kv.values():
            kv.chunks.starts[1:] = ends

    def fill(self, flat: Flat, block_size: int) -> None:
        """Write the rest of a step into the batch's arrays."""
        batch, befores = self._batch, np.array(flat.befores, np.int64)
        positions = befores[self._chunk_of] + self._within
        batch.tokens[:] = flat.tokens
        batch.positions[:] = positions
        block, place = np.divmod(positions, block_size)
        for window, kv in batch.kv.items():
            table = flat.tables[window]
            kv.slots[:] = table[self._chunk_of, block] * block_size + place
            kv.chunks.lengths[:] = befores + self._counts
            if table is not self._tables.get(window):
                kv.chunks.block_table[:, : table.shape[1]] = table
                self._tables[window] = table


def last_rows(ends: I64, num_wanted: Sequence[int]) -> I64:
    """The last so many rows of each chunk, where the chunks end at these rows."""
    wanted = np.array(num_wanted, np.int64)
    before = np.cumsum(wanted) - wanted
    return np.repeat(ends - wanted - before, wanted) + np.arange(wanted.sum())
