"""Tensors of a Hugging Face checkpoint that are not plain entries of a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot.ops.arrays import F32, Array


class Stored(Protocol):
    """A tensor of a checkpoint, stored or derived."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def floats(self, rows: slice = ...) -> F32:
        """Rows of its first axis in float32."""


@dataclass(frozen=True)
class Derived:
    """A tensor computed from stored ones on demand."""

    shape: tuple[int, ...]  # of the result
    make: Callable[[], Array]  # computes the values

    def floats(self, rows: slice = slice(None)) -> F32:
        return np.ascontiguousarray(self.make()[rows], np.float32)


@dataclass(frozen=True)
class Stacked:
    """Experts' matrices that the checkpoint stores separately, as one tensor [experts, rows, columns]."""

    parts: Sequence[Stored]  # one per expert, all of one shape

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.parts), *self.parts[0].shape)

    def floats(self, rows: slice = slice(None)) -> F32:
        return np.stack([part.floats() for part in self.parts[rows]])
