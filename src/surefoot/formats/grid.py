"""Converts groups of weights with float scales to one 15-bit integer grid per row, the range of a two-limb weight.

docs/design/checkpoints.md states the error. native/kernels/pack_blocks.cpp does the same, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from surefoot.formats.rounding import GRID_15
from surefoot.ops.arrays import F32, I8
from surefoot.ops.weights import I16, FactoredScales, IntegerWeights, WeightFormat


@dataclass(frozen=True)
class AffineGroups:
    """Weights in groups of columns: scale * value + offset."""

    codes: I8  # [n, k]
    group: int  # columns of a group
    scales: F32  # [n, groups]
    offsets: F32 | None  # [n, groups]
    table: I8 | None  # values of 4-bit codes; None: the value of an 8-bit code is the code itself
    span: tuple[int, int]  # smallest and largest value
    factored: FactoredScales | None = None  # the scales and offsets again, as products

    def floats(self) -> F32:
        n, k = self.codes.shape
        values = (self.codes if self.table is None else self.table[self.codes]).astype(np.float32)
        values = values.reshape(n, -1, self.group) * self.scales[..., None]
        if self.offsets is not None:
            values += self.offsets[..., None]
        return values.reshape(n, k)


@dataclass(frozen=True)
class Grid:
    """The mapping of values to the kernels' t = stretch * (value - centre)."""

    centre: int
    stretch: int
    fraction: int  # multipliers are in units of 1 / fraction

    @staticmethod
    def over(span: tuple[int, int], with_offsets: bool, table: bool) -> "Grid":
        """The grid for values within `span`.

        An entry of a table encodes the integer t * M. An 8-bit code encodes t * M / 128, with the smallest stretch
        whose multipliers fit int16 even for a group that spans -16256 to 16256. Without offsets the centre is 0.
        """
        low, high = span
        centre = (low + high + 1) // 2 if with_offsets else 0
        width = high - low if with_offsets else 2 * max(-low, high)
        return Grid(centre, 1, 1) if table else Grid(centre, -(-2 * GRID_15 * 128 // (32767 * width)), 128)

    def table(self, table: I8 | None) -> I8 | None:
        return None if table is None else self.stretched(table)

    def stretched(self, values: I8) -> I8:
        return (values - np.int8(self.centre)) * np.int8(self.stretch)


def row_integers(groups: AffineGroups) -> IntegerWeights:
    """The groups as integers times a row's unit, which is its largest possible weight / 16256.

    4-bit codes as t * M + Z: off by at most |t| / 2 units for M, and half a unit for Z where there are offsets.
    8-bit codes as ((t * M + 64) >> 7) + Z: |t| / 256 for M, half a unit for the product, and half for Z.
    """
    grid = Grid.over(groups.span, groups.offsets is not None, groups.table is not None)
    units = _row_units(groups)
    steps, offset_steps = _in_units(groups, units[:, None])
    multipliers = _int16(steps * np.float32(grid.fraction / grid.stretch))
    offsets = None if offset_steps is None else _int16(offset_steps + np.float32(grid.centre) * steps)
    bits, codes = (8, grid.stretched(groups.codes)) if groups.table is None else (4, groups.codes)
    fmt = WeightFormat(bits, limbs=2, group=groups.group)
    return IntegerWeights(fmt, codes, units, multipliers, offsets, grid.table(groups.table))


def _in_units(groups: AffineGroups, units: F32) -> tuple[F32, F32 | None]:
    """Scales and offsets over the row's unit."""
    if groups.factored is not None:
        inverse = np.float32(1) / units
        return groups.factored.scales(inverse), groups.factored.offsets(inverse)
    return groups.scales / units, None if groups.offsets is None else groups.offsets / units


def to_integers(groups: AffineGroups) -> IntegerWeights:
    """The groups in the narrowest format that keeps their codes."""
    has_row_scales = groups.table is None and groups.offsets is None and groups.scales.shape[1] == 1
    if has_row_scales and groups.codes.min(initial=0) > -128:
        scales = np.ascontiguousarray(groups.scales[:, 0])
        if not np.isfinite(scales).all():
            raise ValueError("scales are infinite or not a number")
        return IntegerWeights(WeightFormat(bits=8, limbs=1), groups.codes, scales)
    return row_integers(for_kernels(groups))


def for_kernels(groups: AffineGroups) -> AffineGroups:
    """The same weights in groups that the kernels support, without the code -128, which they do not support."""
    group = groups.group
    if group not in (16, 32) and group % 64:
        group = next((size for size in (32, 16) if group % size == 0), 0)
    if not group:
        raise ValueError(f"groups of {groups.group} columns: only multiples of 16 are supported")
    if groups.table is None and groups.codes.min(initial=0) == -128:
        # A group with -128 moves up by one. If it has 127 too, which is rare in small groups, that decodes as 126.
        return _without_lowest(regrouped(groups, next(size for size in (64, 32, 16) if group % size == 0)))
    return regrouped(groups, group)


def alike(matrices: Sequence[AffineGroups]) -> list[AffineGroups]:
    """The matrices in a common format, as experts must be: the smallest group of all, and offsets for all or none."""
    matrices = [for_kernels(matrix) for matrix in matrices]
    group = min(matrix.group for matrix in matrices)
    matrices = [regrouped(matrix, group) for matrix in matrices]
    if all(matrix.offsets is None for matrix in matrices):
        return matrices
    return [
        replace(matrix, offsets=np.zeros_like(matrix.scales), factored=None) if matrix.offsets is None else matrix
        for matrix in matrices
    ]


def regrouped(groups: AffineGroups, group: int) -> AffineGroups:
    """The same weights in smaller groups, each with its parent's scale and offset."""
    times = groups.group // group
    offsets = None if groups.offsets is None else np.repeat(groups.offsets, times, axis=1)
    scales = np.repeat(groups.scales, times, axis=1)
    factored = groups.factored if times == 1 else None
    return replace(groups, group=group, scales=scales, offsets=offsets, factored=factored)


def _without_lowest(groups: AffineGroups) -> AffineGroups:
    """The weights with codes of at least -127: groups with -128 move up by one."""
    n, k = groups.codes.shape
    codes = groups.codes.reshape(n, -1, groups.group)
    low = (codes == -128).any(axis=2)
    moved = np.clip(codes.astype(np.int16) + low[..., None], -127, 127).astype(np.int8)
    before = np.float32(0) if groups.offsets is None else groups.offsets
    offsets = np.where(low, before - groups.scales, before).astype(np.float32)
    return replace(groups, codes=moved.reshape(n, k), offsets=offsets, factored=None)


def _row_units(groups: AffineGroups) -> F32:
    with np.errstate(invalid="ignore", over="ignore"):  # checked below
        ends = [groups.scales * np.float32(end) for end in groups.span]
        if groups.offsets is not None:
            ends = [end + groups.offsets for end in ends]
    largest = np.maximum(np.abs(ends[0]), np.abs(ends[1])).max(axis=1)
    if not np.isfinite(largest).all():
        raise ValueError("scales or offsets are infinite or not a number")
    # No subnormal units: a row of tiny weights may lose bits, but never divides by zero.
    units: F32 = np.maximum(largest / np.float32(GRID_15), np.finfo(np.float32).tiny)
    return units


def _int16(values: F32) -> I16:
    return np.rint(values).astype(np.int16)
