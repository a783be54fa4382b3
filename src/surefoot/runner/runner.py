"""The runner: owns a model's KV bytes and runs its forward pass. Callers say which block holds which tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import gt

from surefoot.models import WANTED, Model, Workspace
from surefoot.ops import Backend, KvForm, Shape
from surefoot.ops.arrays import F32
from surefoot.runner.kv_store import KvStore
from surefoot.runner.passes import BatchRows, FlatStep, Passes, make_batch

LEAST_CAPACITY = (16, 4, 4)  # rows, chunks, rows with logits


@dataclass
class Runner:
    """A model with memory for keys and values."""

    backend: Backend
    model: Model
    max_context: int  # tokens that one request's block tables can hold
    num_blocks: Mapping[int, int]  # by window
    max_chunk: int = 512  # tokens of one request in one step
    kv_form: KvForm = KvForm.KEYS_TWO_LIMBS
    record: bool = True  # False: operation by operation, as a float model of experts must
    block_size: int = 64
    num_slots: int = 0  # of states, for models that have any
    kv: KvStore = field(init=False)

    def __post_init__(self) -> None:
        config = self.model.config
        self.kv = KvStore(
            self.backend, config, self.max_context, self.num_blocks, self.kv_form, self.block_size, self.num_slots
        )
        self._workspace = Workspace()
        self._scoring = Workspace()  # for logits besides those that a step wants
        self._passes: Passes | None = None

    def prepare(self, *shape: int) -> None:
        """Record now for steps up to that shape: rows, chunks, rows with logits."""
        if self.record:
            self._passes_for(shape)

    def forward(self, step: FlatStep) -> F32:
        """Logits of the wanted rows; they stay until the next step."""
        if not self.record:
            batch = make_batch(self.model, self.kv, step.shape)
            BatchRows(batch, step.counts, step.num_logits).fill(step, self.kv.block_size)
            return self.model.forward(self.backend, batch, self.kv.memory, self._workspace)
        return self._passes_for(step.shape).run(step)

    def normed(self, first: int, count: int) -> F32:
        """Hidden states of rows of the last step, after the last norm."""
        return self.model.normed(self.backend, self._workspace, first, count)

    def logits(self, first: int, count: int) -> F32:
        """Of any rows of the last step; they stay until this is called again."""
        return self.model.logits_of(self.backend, self._workspace, first, count, self._scoring)

    def hidden(self, num_rows: int) -> F32:
        """After the last layer, of the rows whose logits the last step wanted; they stay until the next step."""
        return self._workspace.floats(WANTED, num_rows, self.model.config.width)

    def _passes_for(self, shape: Shape) -> Passes:
        before = self._passes.capacity if self._passes is not None else LEAST_CAPACITY
        if self._passes is None or any(map(gt, shape, before)):
            capacity = tuple(1 << (size - 1).bit_length() for size in map(max, shape, before))
            self._passes = Passes(self.backend, self.model, self.kv, self._workspace, capacity)
        return self._passes
