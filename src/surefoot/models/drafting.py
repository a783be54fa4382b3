"""What drafts beside a model: a layer that follows the model's pass and guesses the token after the next."""

from dataclasses import dataclass
from typing import Protocol

from surefoot.models.attention import Attention
from surefoot.models.linear import Linear
from surefoot.models.step import Batch, LayerMemory, Norm, Step
from surefoot.models.workspace import Workspace
from surefoot.ops import Backend
from surefoot.ops.arrays import F32, I64


@dataclass(frozen=True)
class DraftOutputs:
    """How logits are made of a drafting layer's stream."""

    norm: Norm
    head: Linear | None = None  # None: the model's
    ids: I64 | None = None  # the token id of each row of the head; None: rows are ids


class DraftingLayer(Protocol):
    """Implemented by a checkpoint's own layer (`mtp`) and by a published head (`eagle`). Its keys and values lie beside
    the model's; the row before a chunk is a state."""

    @property
    def attention(self) -> Attention: ...

    @property
    def outputs(self) -> DraftOutputs: ...

    @property
    def rows(self) -> tuple[str, int] | None:
        """The workspace's name for the rows that guesses begin from, and their lanes; None: the model's last rows."""

    def follow(self, step: Step) -> None:
        """Writes the keys and values of the step's rows. The step's stream stays as it is."""

    def first(self, backend: Backend, rows: F32) -> F32:
        """What the first guess reads of the rows that guesses begin from."""

    def guess(self, backend: Backend, batch: Batch, before: F32, memory: LayerMemory, workspace: Workspace) -> F32:
        """The layer's stream for the batch's tokens, one for each chunk, each after a row `before`; in the
        workspace."""

    def further(self, backend: Backend, stream: F32) -> F32:
        """What the next guess reads of that stream."""
