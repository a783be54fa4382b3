"""The runner: owns a model's KV cache memory and runs its forward pass. Callers manage the block tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import gt

from surefoot.models import WANTED, Model, Workspace
from surefoot.ops import Backend, KvForm, Shape
from surefoot.ops.arrays import F32
from surefoot.runner.kv_store import KvStore
from surefoot.runner.passes import BatchRows, FlatStep, Passes, make_batch

MIN_CAPACITY = (16, 4, 4)  # rows, chunks, rows with logits


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
        """Hidden states after the last layer, of the rows with logits in the last step; valid until the next step."""
        return self._workspace.floats(WANTED, num_rows, self.model.config.width)

    def _passes_for(self, shape: Shape) -> Passes:
        before = self._passes.capacity if self._passes is not None else MIN_CAPACITY
        if self._passes is None or any(map(gt, shape, before)):
            capacity = tuple(1 << (size - 1).bit_length() for size in map(max, shape, before))
            self._passes = Passes(self.backend, self.model, self.kv, self._workspace, capacity)
        return self._passes
