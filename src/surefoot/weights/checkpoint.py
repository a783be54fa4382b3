"""What a model asks of a checkpoint, whatever the file: metadata, and tensors by their GGUF names."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from surefoot.ops.arrays import F32
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat


class Tensor(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


class Checkpoint(Protocol):
    """`metadata` is GGUF's, or config.json's. Shapes are rows, then columns; experts come first."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    def floats(self, name: str) -> F32:
        """The tensor in float32."""

    def integers(self, name: str, float_format: WeightFormat = ...) -> IntegerWeights:
        """A matrix in the file's own codes, or rounded to `float_format` where the file has floats."""

    def fused(self, backend: Backend, names: Sequence[str], float_format: WeightFormat = ...) -> list[PackedWeights]:
        """Matrices one below the other, packed, in as few as their formats allow."""

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = ...
    ) -> list[list[PackedWeights]]:
        """The same for tensors [experts, rows, columns]: lists of one matrix per expert."""
