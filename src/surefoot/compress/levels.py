"""What a code may stand for, before any scale."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.ops.arrays import F32, U8

# Quantiles of a normal distribution, brought to -1..1 with an exact 0 (QLoRA); FP4: e2m1.
NF4 = (
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
)  # fmt: skip
FP4 = (-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Levels:
    """Ascending."""

    values: F32

    @classmethod
    def of(cls, values: "tuple[float, ...] | range") -> "Levels":
        return cls(np.array(sorted(set(values)), np.float32))

    @cached_property
    def uniform(self) -> bool:
        return bool((np.diff(self.values) == 1).all())

    @cached_property
    def _cells(self) -> "_Cells":
        return _Cells.between((self.values[1:] + self.values[:-1]) / np.float32(2))

    def index(self, x: F32) -> U8:
        """The nearest level's number."""
        if self.uniform:
            low = self.values[0]
            codes: U8 = np.clip(np.rint(x) - low, 0, len(self.values) - 1).astype(np.uint8)
            return codes
        return self._cells.index(x)

    def nearest(self, x: F32) -> F32:
        if self.uniform:
            rounded: F32 = np.rint(x)
            return np.clip(rounded, self.values[0], self.values[-1], out=rounded)
        return self.values[self._cells.index(x)]


@dataclass(frozen=True)
class _Cells:
    """The line in cells as wide as the narrowest gap, so that each has one border between levels at most: where x lies
    is one look into a table and one comparison, a tenth of a binary search's time."""

    low: np.float32
    per_unit: np.float32
    before: U8  # borders to the left of the cell
    border: F32  # the one in it, infinite where there is none

    @classmethod
    def between(cls, borders: F32) -> "_Cells":
        width = np.diff(borders).min() * 0.99
        place = ((borders - borders[0]) / width).astype(np.int64)
        count = int(place[-1]) + 2
        inside = np.full(count, np.inf, np.float32)
        inside[place] = borders
        before = np.searchsorted(place, np.arange(count)).astype(np.uint8)
        return cls(np.float32(borders[0]), np.float32(1 / width), before, inside)

    def index(self, x: F32) -> U8:
        where = (x - self.low) * self.per_unit
        cell = np.clip(where, 0, len(self.before) - 1, out=where).astype(np.int32)
        numbers: U8 = self.before[cell] + (x > self.border[cell])
        return numbers
