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
class Padded:
    """A table with fewer rows than there are tokens: those that are missing are like the first."""

    table: Stored
    num_rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_rows, *self.table.shape[1:])

    def floats(self, rows: slice = slice(None)) -> F32:
        start, stop, _ = rows.indices(self.num_rows)
        own = self.table.shape[0]
        there = self.table.floats(slice(min(start, own), min(stop, own)))
        missing = max(stop - max(start, own), 0)
        return np.concatenate([there, np.repeat(self.table.floats(slice(1)), missing, axis=0)]) if missing else there


@dataclass(frozen=True)
class Stacked:
    """Experts' matrices that the checkpoint stores separately, as one tensor [experts, rows, columns]."""

    parts: Sequence[Stored]  # one per expert, all of one shape

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.parts), *self.parts[0].shape)

    def floats(self, rows: slice = slice(None)) -> F32:
        return np.stack([part.floats() for part in self.parts[rows]])
