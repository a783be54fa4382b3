"""A checkpoint that reports the progress of reading it."""

import math
from collections.abc import Callable, Sequence

from surefoot.formats import W8_GROUPED
from surefoot.ops.arrays import F32
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat
from surefoot.weights.checkpoint import Checkpoint

Report = Callable[[int, int], None]  # called with the amount done and the total


class ReportingCheckpoint:
    """Reports the number of weights read. A tensor that is read twice counts once."""

    def __init__(self, checkpoint: Checkpoint, report: Report) -> None:
        self._checkpoint = checkpoint
        self._report = report
        self._unread = {name: math.prod(tensor.shape) for name, tensor in checkpoint.tensors.items()}
        self._total = sum(self._unread.values())
        self._done = 0
        self.metadata, self.tensors = checkpoint.metadata, checkpoint.tensors

    def floats(self, name: str) -> F32:
        values = self._checkpoint.floats(name)
        self._count([name])
        return values

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        weights = self._checkpoint.integers(name, float_format)
        self._count([name])
        return weights

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        matrices = self._checkpoint.fused(backend, names, float_format)
        self._count(names)
        return matrices

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[list[PackedWeights]]:
        runs = self._checkpoint.fused_experts(backend, names, float_format)
        self._count(names)
        return runs

    def _count(self, names: Sequence[str]) -> None:
        self._done += sum(self._unread.pop(name, 0) for name in names)
        self._report(self._done, self._total)
