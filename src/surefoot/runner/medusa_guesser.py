"""Guesses by Medusa heads (see `models.medusa`)."""

from surefoot.models import MedusaHeads, Workspace
from surefoot.ops import Backend
from surefoot.ops.arrays import F32, I64


class MedusaGuesser:
    """Implements StateGuesser. Its states are the normed ones, which all heads read."""

    def __init__(self, backend: Backend, heads: MedusaHeads) -> None:
        self._backend, self._heads, self._workspace = backend, heads, Workspace()

    @property
    def max_depth(self) -> int:
        return len(self._heads.heads)

    def guess(self, states: F32, tokens: I64, depth: int) -> tuple[F32, F32]:
        rows = states if depth else self._heads.normed(self._backend, states)
        return rows, self._heads.heads[depth].logits(self._backend, rows, self._workspace)
