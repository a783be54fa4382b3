"""The interface of a checkpoint, whatever its file format: metadata, and tensors by their GGUF names."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from surefoot.formats import W8_GROUPED
from surefoot.ops.arrays import F32
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat

Report = Callable[[int, int], None]  # called with the amount done and the total


class Tensor(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


class Checkpoint(Protocol):
    """An open model file or folder. `metadata` has the keys of GGUF or of config.json. Shapes are [rows, columns] or
    [experts, rows, columns]."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    def floats(self, name: str) -> F32:
        """The tensor in float32."""

    def integers(self, name: str, float_format: WeightFormat = ...) -> IntegerWeights:
        """A matrix in the file's own codes, or rounded to `float_format` if the file has floats."""

    def fused(self, backend: Backend, names: Sequence[str], float_format: WeightFormat = ...) -> list[PackedWeights]:
        """The matrices stacked by rows and packed, in as few packed matrices as their formats allow."""

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = ...
    ) -> list[list[PackedWeights]]:
        """Same as `fused`, for tensors [experts, rows, columns]: each list has one matrix per expert."""


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
