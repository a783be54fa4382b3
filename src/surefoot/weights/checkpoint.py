"""The interface of a checkpoint, whatever its file format: metadata, and tensors by their GGUF names."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from surefoot.ops.arrays import F32
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat


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
