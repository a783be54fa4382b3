"""Quantisation grids: for each row and group of columns a scale and an offset over a list of levels.

A grid is fitted before any code is assigned, so that codes can be assigned in any order and by any rule (see `assign`).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot.ops.arrays import F32, U8
from surefoot_compress.levels import Levels
from surefoot_compress.search import F3, as_half, safe, search_scale, search_zero, zero_point


@dataclass(frozen=True)
class QuantGrid:
    """The values that each weight of a matrix may take: scale * level + offset."""

    levels: Levels  # the unscaled values
    group: int  # columns that share a scale
    scales: F32  # [n, groups]
    offsets: F32 | None = None  # [n, groups]; None: all 0

    def index(self, weights: F32, column: int | None = None) -> U8:
        """Codes of the nearest levels: of all weights [n, k], or of one column [n]."""
        if column is not None:
            return self.levels.index(self._inverse(weights, column // self.group))
        n, k = weights.shape
        scales, offsets = self.scales[..., None], None if self.offsets is None else self.offsets[..., None]
        x = weights.reshape(n, -1, self.group)
        return self.levels.index((x if offsets is None else x - offsets) / scales).reshape(n, k)

    def _inverse(self, column: F32, group: int) -> F32:
        moved: F32 = column if self.offsets is None else column - self.offsets[:, group]
        return moved / self.scales[:, group]

    def column(self, codes: U8, column: int) -> F32:
        group = column // self.group
        values: F32 = self.levels.values[codes] * self.scales[:, group]
        return values if self.offsets is None else values + self.offsets[:, group]

    def rows(self, rows: slice) -> "QuantGrid":
        offsets = None if self.offsets is None else self.offsets[rows]
        return QuantGrid(self.levels, self.group, self.scales[rows], offsets)

    def floats(self, codes: U8) -> F32:
        n, k = codes.shape
        values = self.levels.values[codes].reshape(n, -1, self.group) * self.scales[..., None]
        if self.offsets is not None:
            values += self.offsets[..., None]
        return values.reshape(n, k)


class Format(Protocol):
    """A storage format of a matrix."""

    @property
    def name(self) -> str: ...

    def suits(self, columns: int) -> bool: ...

    def nbytes(self, n: int, k: int) -> int:
        """Size of a matrix of n rows and k columns, scales included."""

    def fit(self, weights: F32, importance: F32 | None) -> QuantGrid:
        """A grid for these weights. With the importance of each column (the mean square of its inputs), scales are
        searched for with the least weighted error; without, they come from the ends of each group."""


@dataclass(frozen=True)
class IntFormat:
    """Integers with a half-precision scale per group of columns: symmetric, or with an integer zero point."""

    bits: int  # of a code
    group: int = 32  # columns that share a scale; 0: the whole row
    symmetric: bool = True  # no zero point
    scale_bits: int = 16  # of a scale, for the size

    @property
    def name(self) -> str:
        return f"int{self.bits}" + (f"-g{self.group}" if self.group else "") + ("" if self.symmetric else "-zero")

    @property
    def lowest(self) -> int:
        """The first level. Symmetric int8 leaves out -128, for which the kernels would need a second limb."""
        return -127 if self.symmetric and self.bits == 8 else -(2 ** (self.bits - 1))

    def suits(self, columns: int) -> bool:
        return columns % (self.group or columns) == 0

    def nbytes(self, n: int, k: int) -> int:
        each = self.scale_bits + (0 if self.symmetric else self.bits)
        return (n * k * self.bits + n * (k // (self.group or k)) * each) // 8

    def fit(self, weights: F32, importance: F32 | None) -> QuantGrid:
        half, group = 2 ** (self.bits - 1), self.group or weights.shape[1]
        levels, x = Levels.of(range(self.lowest, half)), by_group(weights, group)
        weigh = _weights(importance, group)
        if self.symmetric:
            top = np.abs(x).max(axis=2) / np.float32((half - 1 - self.lowest) / 2)
            scales = safe(top) if weigh is None else search_scale(levels, x, weigh, safe(top))
            return QuantGrid(levels, group, as_half(scales))
        low, high = np.minimum(x.min(axis=2), 0), np.maximum(x.max(axis=2), 0)
        scales, zeros = zero_point(2 * half - 1, low, high)
        if weigh is not None:
            scales, zeros = search_zero(2 * half - 1, x, weigh, low, high)
        return QuantGrid(levels, group, scales, (half - zeros) * scales)


@dataclass(frozen=True)
class TableFormat:
    """4-bit codes that index a table (NF4, FP4), with a half-precision scale per group."""

    name: str  # as users write it
    values: tuple[float, ...]  # of the table
    group: int = 32  # columns that share a scale

    def suits(self, columns: int) -> bool:
        return columns % self.group == 0

    def nbytes(self, n: int, k: int) -> int:
        return n * k // 2 + n * (k // self.group) * 2

    def fit(self, weights: F32, importance: F32 | None) -> QuantGrid:
        levels, x, weigh = Levels.of(self.values), by_group(weights, self.group), _weights(importance, self.group)
        top = safe(np.abs(x).max(axis=2) / np.float32(max(self.values)))
        return QuantGrid(levels, self.group, as_half(top if weigh is None else search_scale(levels, x, weigh, top)))


def by_group(weights: F32, group: int) -> F3:
    return weights.reshape(len(weights), -1, group)


def _weights(importance: F32 | None, group: int) -> F3 | None:
    return None if importance is None else importance.reshape(1, -1, group)
