"""Tensors of a Hugging Face checkpoint that are not plain entries of a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot.ops.arrays import F32, Array


class Stored(Protocol):
    """A tensor as the checkpoint has it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def floats(self, rows: slice = ...) -> F32:
        """Some of its rows (of the first axis) in float32."""


@dataclass(frozen=True)
class InMemory:
    array: F32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def floats(self, rows: slice = slice(None)) -> F32:
        return self.array[rows]


@dataclass(frozen=True)
class Derived:
    """A tensor made from stored ones when it is asked for."""

    shape: tuple[int, ...]
    make: Callable[[], Array]

    def floats(self, rows: slice = slice(None)) -> F32:
        return np.ascontiguousarray(self.make()[rows], np.float32)


@dataclass(frozen=True)
class Stacked:
    """Matrices of one shape, one per expert, that lie apart in the checkpoint."""

    parts: Sequence[Stored]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.parts), *self.parts[0].shape)

    def floats(self, rows: slice = slice(None)) -> F32:
        return np.stack([part.floats() for part in self.parts[rows]])
