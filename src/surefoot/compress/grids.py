"""Levels that weights may take: per row and group of columns a scale and an offset over a list of levels.

A grid is chosen before any code is, so that codes can be assigned in any order and by any rule (see assign).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.arrays import F32, U8

SHRINKS = np.linspace(0.6, 1.05, 16, dtype=np.float32)  # of a group's range: what the search tries
REFITS = 2  # rounds of least squares for the scale (and offset), once its codes are known
# Quantiles of a normal distribution, brought to -1..1 with an exact 0 (QLoRA); FP4: e2m1.
NF4 = (
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
)  # fmt: skip
FP4 = (-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

F3 = NDArray[np.float32]  # [n, groups, group]


@dataclass(frozen=True)
class Levels:
    """What a code may stand for, ascending."""

    values: F32

    @classmethod
    def of(cls, values: "tuple[float, ...] | range") -> "Levels":
        return cls(np.array(sorted(set(values)), np.float32))

    @cached_property
    def uniform(self) -> bool:
        return bool((np.diff(self.values) == 1).all())

    @cached_property
    def _middles(self) -> F32:
        return ((self.values[1:] + self.values[:-1]) / 2).astype(np.float32)

    def index(self, x: F32) -> U8:
        """The nearest level's number."""
        if self.uniform:
            low = self.values[0]
            codes: U8 = np.clip(np.rint(x) - low, 0, len(self.values) - 1).astype(np.uint8)
            return codes
        return np.searchsorted(self._middles, x).astype(np.uint8)

    def nearest(self, x: F32) -> F32:
        if self.uniform:
            rounded: F32 = np.clip(np.rint(x), self.values[0], self.values[-1])
            return rounded
        return self.values[np.searchsorted(self._middles, x)]


@dataclass(frozen=True)
class Grid:
    """Weight = scale * level + offset; scales and offsets [n, groups]."""

    levels: Levels
    group: int
    scales: F32
    offsets: F32 | None = None

    def index(self, weights: F32, column: int | None = None) -> U8:
        """Of all weights [n, k], or of one column [n]."""
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

    def rows(self, rows: slice) -> "Grid":
        offsets = None if self.offsets is None else self.offsets[rows]
        return Grid(self.levels, self.group, self.scales[rows], offsets)

    def floats(self, codes: U8) -> F32:
        n, k = codes.shape
        values = self.levels.values[codes].reshape(n, -1, self.group) * self.scales[..., None]
        if self.offsets is not None:
            values += self.offsets[..., None]
        return values.reshape(n, k)


class Format(Protocol):
    """A way to keep a matrix."""

    @property
    def name(self) -> str: ...

    def suits(self, columns: int) -> bool: ...

    def nbytes(self, n: int, k: int) -> int:
        """Of a matrix, scales included."""

    def fit(self, weights: F32, importance: F32 | None) -> Grid:
        """Levels for these weights. With an importance per column (how large the inputs are that it meets, squared) by
        a search for the least weighted error; without, from the ends of each group."""


@dataclass(frozen=True)
class IntFormat:
    """Integers of some bits in groups of columns (0: the whole row): symmetric, or with a zero point that is whole."""

    bits: int
    group: int = 32
    symmetric: bool = True
    scale_bits: int = 16

    @property
    def name(self) -> str:
        return f"int{self.bits}" + (f"-g{self.group}" if self.group else "") + ("" if self.symmetric else "-zero")

    def suits(self, columns: int) -> bool:
        return columns % (self.group or columns) == 0

    def nbytes(self, n: int, k: int) -> int:
        each = self.scale_bits + (0 if self.symmetric else self.bits)
        return (n * k * self.bits + n * (k // (self.group or k)) * each) // 8

    def fit(self, weights: F32, importance: F32 | None) -> Grid:
        half, group = 2 ** (self.bits - 1), self.group or weights.shape[1]
        levels, x = Levels.of(range(-half, half)), by_group(weights, group)
        weigh = _weights(importance, group)
        if self.symmetric:
            top = np.abs(x).max(axis=2) / np.float32(half - 0.5)
            scales = safe(top) if weigh is None else search_scale(levels, x, weigh, safe(top))
            return Grid(levels, group, as_half(scales))
        low, high = np.minimum(x.min(axis=2), 0), np.maximum(x.max(axis=2), 0)
        scales, zeros = zero_point(2 * half - 1, low, high)
        if weigh is not None:
            scales, zeros = search_zero(2 * half - 1, x, weigh, low, high)
        return Grid(levels, group, scales, (half - zeros) * scales)


@dataclass(frozen=True)
class TableFormat:
    """Codes of 4 bits with a table (NF4, FP4), a half-precision scale per group."""

    name: str
    values: tuple[float, ...]
    group: int = 32

    def suits(self, columns: int) -> bool:
        return columns % self.group == 0

    def nbytes(self, n: int, k: int) -> int:
        return n * k // 2 + n * (k // self.group) * 2

    def fit(self, weights: F32, importance: F32 | None) -> Grid:
        levels, x, weigh = Levels.of(self.values), by_group(weights, self.group), _weights(importance, self.group)
        top = safe(np.abs(x).max(axis=2) / np.float32(max(self.values)))
        return Grid(levels, self.group, as_half(top if weigh is None else search_scale(levels, x, weigh, top)))


# ---- choosing scales ----


def by_group(weights: F32, group: int) -> F3:
    return weights.reshape(len(weights), -1, group)


def _weights(importance: F32 | None, group: int) -> F3 | None:
    return None if importance is None else importance.reshape(1, -1, group)


def safe(scales: F32) -> F32:
    """No zeros to divide by: a group of nothing but zeros keeps code 0 whatever its scale."""
    return np.where(np.abs(scales) > 1e-12, scales, np.float32(1e-6)).astype(np.float32)


def as_half(scales: F32) -> F32:
    """As files keep them."""
    return safe(scales.astype(np.float16).astype(np.float32))


def search_scale(levels: Levels, x: F3, weigh: F3, top: F32, signs: tuple[int, ...] = (1,)) -> F32:
    """The scale of each group with the least weighted squared error; `top` is where the search begins."""
    best, least = top, np.full(top.shape, np.inf, np.float32)
    for sign in signs:
        for shrink in SHRINKS:
            scales = top * np.float32(sign) * shrink
            for _ in range(REFITS):
                level = levels.nearest(x / scales[..., None])
                scales = safe(_ratio((weigh * level * x).sum(axis=2), (weigh * level * level).sum(axis=2), scales))
            error = (weigh * (x - level * scales[..., None]) ** 2).sum(axis=2)
            better = error < least
            best, least = np.where(better, scales, best), np.where(better, error, least)
    return best


def best_power(levels: Levels, x: F3, weigh: F3, top: F32) -> F32:
    """As search_scale, among powers of two."""
    nearest: F32 = np.exp2(np.rint(np.log2(top))).astype(np.float32)
    best, least = nearest, np.full(top.shape, np.inf, np.float32)
    for power in (0.5, 1.0, 2.0):
        scales = nearest * np.float32(power)
        error = (weigh * (x - levels.nearest(x / scales[..., None]) * scales[..., None]) ** 2).sum(axis=2)
        best, least = np.where(error < least, scales, best), np.minimum(error, least)
    return best


def zero_point(steps: int, low: F32, high: F32) -> tuple[F32, F32]:
    """Scale, and the code of `steps` + 1 that stands for 0."""
    scales = as_half(safe((high - low) / np.float32(steps)))
    return scales, np.clip(np.rint(-low / scales), 0, steps)


def search_zero(steps: int, x: F3, weigh: F3, low: F32, high: F32) -> tuple[F32, F32]:
    """As search_scale, with a zero point."""
    best, least = zero_point(steps, low, high), np.full(low.shape, np.inf, np.float32)
    for shrink in SHRINKS:
        scales, zeros = zero_point(steps, low * shrink, high * shrink)
        for _ in range(REFITS):
            level = np.clip(np.rint(x / scales[..., None]) + zeros[..., None], 0, steps) - zeros[..., None]
            top, bottom = (weigh * level * x).sum(axis=2), (weigh * level * level).sum(axis=2)
            scales = as_half(_ratio(top, bottom, scales))
        error = (weigh * (x - level * scales[..., None]) ** 2).sum(axis=2)
        better = (error < least) & (scales > 0)
        best = np.where(better, scales, best[0]), np.where(better, zeros, best[1])
        least = np.where(better, error, least)
    return best


def search_affine(steps: int, x: F3, weigh: F3, low: F32, high: F32) -> tuple[F32, F32]:
    """Scale and lowest value of each group, for codes 0 to `steps`: the least weighted squared error found."""
    best = safe((high - low) / np.float32(steps)), low
    least = np.full(low.shape, np.inf, np.float32)
    total = np.broadcast_to(weigh.sum(axis=2), low.shape)
    mean_x = (weigh * x).sum(axis=2)
    for shrink in SHRINKS:
        scales, lows = safe((high - low) * shrink / np.float32(steps)), low * shrink
        for _ in range(REFITS):
            code = np.clip(np.rint((x - lows[..., None]) / scales[..., None]), 0, steps)
            mean_c, cc = (weigh * code).sum(axis=2), (weigh * code * code).sum(axis=2)
            cx = (weigh * code * x).sum(axis=2)
            scales = safe(_ratio(total * cx - mean_c * mean_x, total * cc - mean_c**2, scales))
            lows = (mean_x - scales * mean_c) / total
        error = (weigh * (x - code * scales[..., None] - lows[..., None]) ** 2).sum(axis=2)
        better = (error < least) & (scales > 0)
        best = np.where(better, scales, best[0]), np.where(better, lows, best[1])
        least = np.where(better, error, least)
    return best


def _ratio(top: F32, bottom: F32, otherwise: F32) -> F32:
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), otherwise).astype(np.float32)
