"""What a model asks of a checkpoint, whatever the file: metadata, and tensors by their GGUF names."""

from collections.abc import Mapping
from typing import Any, Protocol

from surefoot.ops.arrays import F32
from surefoot.ops.weights import IntegerWeights, WeightFormat


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

    def experts(self, name: str, float_format: WeightFormat = ...) -> list[IntegerWeights]:
        """A tensor [experts, rows, columns] as one matrix per expert."""
