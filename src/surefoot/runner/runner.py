"""The runner: owns a model's KV cache memory and runs its forward pass over the chunks of a step, as a recorded
program. Callers manage the block tables."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import gt
from typing import NamedTuple

import numpy as np

from surefoot.models import Batch, Model, Workspace, empty_batch
from surefoot.ops import Backend, Chunks, KvForm, Program, Shape, ShapedProgram, ShapeError, StateRows, third_of
from surefoot.ops.arrays import F32, I64
from surefoot.runner.kv_store import KvStore

MAX_PROGRAMS = 32  # recorded programs of a family that needs one for each shape
MIN_CAPACITY = (16, 4, 4)  # rows, chunks, rows with logits


class StepStates(NamedTuple):
    """The state slots that a step reads and writes."""

    loads: Sequence[int]  # one slot per chunk; negative: starts from zeros
    saves: Sequence[int]  # one slot per token; negative: not saved


class FlatStep(NamedTuple):
    """A step's chunks as flat lists."""

    tokens: Sequence[int]  # of all chunks, concatenated
    num_cached: Sequence[int]  # per chunk: tokens of its request that are in the KV cache
    counts: Sequence[int]  # per chunk: its tokens
    num_logits: Sequence[int]  # per chunk: how many of its last tokens need logits
    tables: Mapping[int, I64]  # block tables by window, [chunks, blocks]; a new array whenever a table has changed
    states: StepStates | None = None  # for models with recurrent states

    @property
    def shape(self) -> Shape:
        """Rows, chunks, rows with logits."""
        return len(self.tokens), len(self.counts), sum(self.num_logits)


class Passes:
    """A model's recorded forward pass, for steps of any shape up to a capacity.

    A family whose pass needs arrays that depend on the shape is recorded once for each shape.
    """

    def __init__(self, backend: Backend, model: Model, kv: KvStore, workspace: Workspace, capacity: Shape) -> None:
        self._backend, self._model, self._kv, self._workspace = backend, model, kv, workspace
        self.capacity = capacity
        self._batch = make_batch(model, kv, capacity)
        self._rows: BatchRows | None = None  # of the last step
        self._layout: tuple[Sequence[int], Sequence[int]] = ((), ())  # counts and num_logits of the last step
        self._programs: dict[bool, ShapedProgram] = {}  # by whether logits are needed
        self._by_shape: OrderedDict[Shape, Program] = OrderedDict()  # least recently used first
        _, self._logits = self._forward(capacity)  # allocates the workspace's arrays, which never move from here on
        try:
            whole = ShapedProgram(backend, self._record, capacity)
            # A step without logits skips the output head.
            headless = whole.beginning(self._record, (*third_of(capacity)[:2], 0))
            self._programs = {True: whole, False: headless}
        except ShapeError:
            pass

    def run(self, step: FlatStep) -> F32:
        """Logits of the requested rows; valid until the next pass."""
        shape, layout = step.shape, (step.counts, step.num_logits)
        if self._rows is None or layout != self._layout:
            self._rows, self._layout = BatchRows(part_of(self._batch, shape), *layout), layout
        self._rows.fill(step, self._kv.block_size)
        if program := self._programs.get(shape[2] > 0):
            program.run(shape)
        else:
            self._program(shape).run()
        return self._logits[: shape[2]]

    def _program(self, shape: Shape) -> Program:
        if shape not in self._by_shape:
            self._by_shape[shape] = self._record(shape)
            if len(self._by_shape) > MAX_PROGRAMS:
                self._by_shape.popitem(last=False)
        self._by_shape.move_to_end(shape)
        return self._by_shape[shape]

    def _record(self, shape: Shape) -> Program:
        return self._forward(shape)[0]

    def _forward(self, shape: Shape) -> tuple[Program, F32]:
        with self._backend.record() as program:
            batch = part_of(self._batch, shape)  # views of arrays that never move
            logits = self._model.forward(self._backend, batch, self._kv.memory, self._workspace)
        return program, logits


def make_batch(model: Model, kv: KvStore, shape: Shape) -> Batch:
    rows, num_chunks, num_wanted = shape
    return empty_batch(rows, num_chunks, num_wanted, dict.fromkeys(model.config.windows, kv.table_width))


def part_of(batch: Batch, shape: Shape) -> Batch:
    """The first rows of a batch, as views of its arrays."""
    rows, num_chunks, num_wanted = shape
    kv = {
        window: replace(
            arrays,
            slots=arrays.slots[:rows],
            chunks=Chunks(
                arrays.chunks.starts[: num_chunks + 1],
                arrays.chunks.lengths[:num_chunks],
                arrays.chunks.block_table[:num_chunks],
            ),
        )
        for window, arrays in batch.kv.items()
    }
    states = StateRows(
        batch.states.starts[: num_chunks + 1], batch.states.loads[:num_chunks], batch.states.saves[:rows]
    )
    return Batch(batch.tokens[:rows], batch.positions[:rows], batch.wanted[:num_wanted], kv, states)


class BatchRows:
    """Maps a batch's rows to chunks. Steps with the same chunk lengths, such as decode steps, share one mapping.

    counts: tokens of each chunk. num_logits: how many of a chunk's last tokens need logits.
    """

    def __init__(self, batch: Batch, counts: Sequence[int], num_logits: Sequence[int]) -> None:
        self._batch = batch
        self._counts = np.array(counts, np.int64)
        ends = np.cumsum(self._counts)
        self._chunk_of = np.repeat(np.arange(len(counts)), self._counts)
        self._tables: dict[int, I64] = {}  # block tables written to the batch
        self._within = np.arange(len(batch.tokens)) - (ends - self._counts)[self._chunk_of]
        batch.wanted[:] = last_rows(ends, num_logits)
        for kv in batch.kv.values():
            kv.chunks.starts[1:] = ends

    def fill(self, step: FlatStep, block_size: int) -> None:
        """Write a step's tokens, positions, slots and block tables to the batch's arrays."""
        batch, num_cached = self._batch, np.array(step.num_cached, np.int64)
        positions = num_cached[self._chunk_of] + self._within
        batch.tokens[:] = step.tokens
        batch.positions[:] = positions
        if step.states is not None:
            batch.states.loads[:] = step.states.loads
            batch.states.saves[:] = step.states.saves
        block, slot = np.divmod(positions, block_size)
        for window, kv in batch.kv.items():
            table = step.tables[window]
            kv.slots[:] = table[self._chunk_of, block] * block_size + slot
            kv.chunks.lengths[:] = num_cached + self._counts
            if table is not self._tables.get(window):
                kv.chunks.block_table[:, : table.shape[1]] = table
                self._tables[window] = table


def last_rows(ends: I64, num_wanted: Sequence[int]) -> I64:
    """The last `num_wanted` rows of each chunk. ends: the row after each chunk's last."""
    wanted = np.array(num_wanted, np.int64)
    before = np.cumsum(wanted) - wanted
    return np.repeat(ends - wanted - before, wanted) + np.arange(wanted.sum())


@dataclass
class Runner:
    """A model with memory for its KV cache."""

    backend: Backend
    model: Model
    max_context: int  # tokens that one request's block tables can hold
    num_blocks: Mapping[int, int]  # by window
    max_chunk: int = 512  # tokens of one request in one step
    kv_form: KvForm = KvForm.KEYS_TWO_LIMBS  # number format of the KV cache
    record: bool = True  # False: runs operation by operation, which float models with experts need
    block_size: int = 64  # tokens
    num_slots: int = 0  # for recurrent states, in models that have them
    num_draft_blocks: int = 0  # for tokens that the model's own layer drafts
    kv: KvStore = field(init=False)

    def __post_init__(self) -> None:
        config = self.model.config
        self.kv = KvStore(
            self.backend, config, self.max_context, self.num_blocks, self.kv_form, self.block_size, self.num_slots,
            self.num_draft_blocks,
        )  # fmt: skip
        self._workspace = Workspace()
        self._scoring = Workspace()  # for logits of rows that the step did not request
        self._passes: Passes | None = None

    def prepare(self, *shape: int) -> None:
        """Record the pass now for steps up to this shape: rows, chunks, rows with logits."""
        if self.record:
            self._passes_for(shape)

    def forward(self, step: FlatStep) -> F32:
        """Logits of the requested rows; valid until the next step."""
        if not self.record:
            batch = make_batch(self.model, self.kv, step.shape)
            BatchRows(batch, step.counts, step.num_logits).fill(step, self.kv.block_size)
            return self.model.forward(self.backend, batch, self.kv.memory, self._workspace)
        return self._passes_for(step.shape).run(step)

    def normed(self, first: int, count: int) -> F32:
        """Hidden states of the last step after the final norm, for `count` rows from `first` on."""
        return self.model.normed(self.backend, self._workspace, first, count)

    def logits(self, first: int, count: int) -> F32:
        """Logits of the last step for `count` rows from `first` on, requested or not; valid until the next call."""
        return self.model.logits_of(self.backend, self._workspace, first, count, self._scoring)

    def hidden(self, num_rows: int) -> F32:
        """The rows that drafts begin from, of the rows with logits in the last step; valid until the next step. These
        are hidden states after the last layer, or what the model's drafting layer reads."""
        name, width = self.model.draft_rows
        return self._workspace.floats(name, num_rows, width)

    def _passes_for(self, shape: Shape) -> Passes:
        before = self._passes.capacity if self._passes is not None else MIN_CAPACITY
        if self._passes is None or any(map(gt, shape, before)):
            capacity = tuple(1 << (size - 1).bit_length() for size in map(max, shape, before))
            self._passes = Passes(self.backend, self.model, self.kv, self._workspace, capacity)
        return self._passes
