"""Ways to multiply a matrix in fewer than four tile products a weight, simulated in float32."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surefoot.formats import AffineGroups
from surefoot.ops.arrays import F32
from surefoot_compress.assign import HessianFactor
from surefoot_compress.grids import IntFormat
from surefoot_compress.layer import quantise
from surefoot_compress.methods import METHODS

PANEL, TILE = 32, 64  # outputs that are packed together; columns of a tile
ROWS = 128  # rounded at a time: temporaries stay in the cache
CLIPS = (1.0, 0.92, 0.84, 0.76)  # scales that are tried, as shares of the one that clips nothing
EXACT = 4.0  # products of two limbs by two


@dataclass(frozen=True)
class Matrix:
    """A matrix of the file."""

    kind: str  # ggml's name of its type
    groups: AffineGroups  # its codes and scales
    weights: F32  # what they say, [n, k]
    importance: F32  # mean square of each input on calibration text, [k]
    hessian: HessianFactor | None  # of the same inputs, if GPTQ is wanted

    @property
    def is_narrow(self) -> bool:
        """Codes of 4 bits, which decode multiplies as they are."""
        return self.groups.table is not None

    @property
    def own_noise(self) -> F32:
        """Mean square of what rounding to the codes has cost: step^2 / 12 a weight, [n, groups]."""
        return self.groups.scales**2 / np.float32(12)

    @cached_property
    def one_limb(self) -> F32:
        """The weights in one limb, the scale of each row by least squares."""
        return _least_squares(self.weights)


@dataclass(frozen=True)
class Limbs:
    """A matrix as some way would multiply it."""

    weights: F32  # values
    products: float  # tile products a weight
    low: F32 | None = None  # low limbs whose product with the inputs' low limbs is left out, in units of the weights


Way = Callable[[Matrix], Limbs]


# ---- one limb ----


def plain(matrix: Matrix) -> Limbs:
    """One limb, a scale a row."""
    return Limbs(_rounded(matrix.weights, _tops(matrix.weights) / 127), 2)


def clipped(matrix: Matrix) -> Limbs:
    """One limb, the scale of a row by least squares."""
    return Limbs(matrix.one_limb, 2)


def blocks_of(columns: int) -> Way:
    """One limb, a scale by least squares for each row and block of columns: sums leave the tiles at its end."""

    def way(matrix: Matrix) -> Limbs:
        starts = range(0, matrix.weights.shape[1], columns)
        return Limbs(np.hstack([_least_squares(matrix.weights[:, i : i + columns]) for i in starts]), 2)

    return way


def column_groups(matrix: Matrix) -> Limbs:
    """One limb, a scale a row times one for each group of 32 columns, which the inputs carry."""
    n, k = matrix.weights.shape
    grouped = matrix.weights.reshape(n, k // 32, 32)
    tops = np.abs(grouped).max(axis=2) + np.float32(1e-12)
    columns = np.ones(k // 32, np.float32)
    for _ in range(4):
        rows = (tops / columns).max(axis=1, keepdims=True)
        columns = ((tops / rows) ** 4).mean(axis=0) ** np.float32(1 / 4)
    return Limbs((_least_squares((grouped / columns[:, None]).reshape(n, k)).reshape(grouped.shape)
                  * columns[:, None]).reshape(n, k), 2)  # fmt: skip


def compensated(matrix: Matrix) -> Limbs:
    """One limb by GPTQ: later columns make up for the error of each. Not a function of codes and scales."""
    return Limbs(quantise(matrix.weights, None, IntFormat(8, 0), METHODS["gptq-ends"], matrix.hessian).floats(), 2)


def on_codes_grid(matrix: Matrix) -> Limbs:
    """One limb that is linear in the code (t m + z, both whole), the row's unit by least squares."""
    if not matrix.is_narrow:
        return clipped(matrix)
    best, error = matrix.weights, np.full((len(matrix.weights), 1), np.inf, np.float32)
    for share in np.linspace(1, 0.75, 11, dtype=np.float32):
        values, _ = _linear(matrix, _tops(matrix.weights) / (127 * share), 1)
        best, error = _better(matrix.weights, best, error, values)
    return Limbs(best, 2)


# ---- one limb here, two there ----


def panels_within(share: float) -> Way:
    """One limb (clipped) for panels where its noise is at most `share` of the file's own."""

    def way(matrix: Matrix) -> Limbs:
        return _mixed(matrix, matrix.one_limb, panel_noise(matrix, matrix.one_limb) <= share)

    return way


def high_limbs_within(share: float) -> Way:
    """The same with the high limb of today's grid, chosen by scales and offsets alone: nothing new to store."""

    def way(matrix: Matrix) -> Limbs:
        steps = high_limb_steps(matrix.groups)
        return _mixed(matrix, _rounded(matrix.weights, steps), panel_noise_by_scales(matrix.groups) <= share)

    return way


def matrices_within(share: float, weighted: bool) -> Way:
    """One limb, and a second limb for the tiles (32 outputs by 64 columns) with most noise, until the noise of the
    rest is at most `share` of the file's own in this matrix. `weighted`: noise counts by the inputs of its column."""

    def way(matrix: Matrix) -> Limbs:
        one = matrix.one_limb
        counts = matrix.importance if weighted else np.ones(one.shape[1], np.float32)
        noise = _tiles((one - matrix.weights) ** 2 * counts)
        budget = share * own_noise_in_sum(matrix, counts)
        order = np.argsort(noise, axis=None)
        fits = np.cumsum(noise.reshape(-1)[order], dtype=np.float64) <= budget
        chosen = np.zeros(noise.size, bool)
        chosen[order[fits]] = True
        mask = _spread(chosen.reshape(noise.shape), one.shape)
        return Limbs(np.where(mask, one, matrix.weights), float(EXACT - 2 * mask.mean()))

    return way


def _mixed(matrix: Matrix, one: F32, panels: NDArray[np.bool_]) -> Limbs:
    chosen = np.repeat(panels, PANEL)[: len(one), None]
    return Limbs(np.where(chosen, one, matrix.weights), float(EXACT - 2 * chosen.mean()))


# ---- two limbs, low times low left out ----


def three_products(matrix: Matrix) -> Limbs:
    """Limbs by rounding, as they are now."""
    unit = _tops(matrix.weights) / np.float32(16256)
    whole = np.rint(matrix.weights / unit)
    return Limbs(matrix.weights, 3, (whole - 128 * np.rint(whole / 128)) * unit)


def three_linear(matrix: Matrix) -> Limbs:
    """Both limbs linear in the 4-bit code, so that decode can still multiply the codes; other codes as now."""
    if not matrix.is_narrow:
        return Limbs(matrix.weights, EXACT)
    base = 28  # the low limb is t Ml + Zl with |t| <= 8 and |Ml|, |Zl| <= 14: 126
    values, low = _linear(matrix, _tops(matrix.weights) / (127 * base - 126), base)
    return Limbs(values, 3, low)


def three_linear_or_one(matrix: Matrix) -> Limbs:
    """The same, and one limb (clipped) for codes of more than 4 bits, which decode expands anyway."""
    return three_linear(matrix) if matrix.is_narrow else clipped(matrix)


def with_noise(matrix: Matrix) -> Limbs:
    """The file's own rounding once more, by chance: an estimate of what the file has lost."""
    chance = np.random.default_rng(0).random(matrix.weights.shape, np.float32) - np.float32(0.5)
    steps = np.repeat(matrix.groups.scales, matrix.groups.group, axis=1)
    return Limbs(matrix.weights + chance * steps, EXACT)


def own_noise_in_sum(matrix: Matrix, counts: F32) -> float:
    """The file's own noise over the whole matrix; each column counts as much as `counts` says."""
    by_group = counts.reshape(-1, matrix.groups.group).sum(axis=1)
    return float((matrix.own_noise.sum(axis=0, dtype=np.float64) * by_group).sum())


def panel_noise(matrix: Matrix, one: F32) -> F32:
    """Noise that `one` adds to each panel, over the file's own."""
    added = ((one - matrix.weights) ** 2).mean(axis=1)
    own = matrix.own_noise.mean(axis=1)
    starts = np.arange(0, len(one), PANEL)
    return np.add.reduceat(added, starts) / np.maximum(np.add.reduceat(own, starts), np.float32(1e-30))


def high_limb_steps(groups: AffineGroups) -> F32:
    """The step of each row's high limb: 1/127 of its largest possible weight, as formats/grid.py has it."""
    offsets = np.float32(0) if groups.offsets is None else groups.offsets
    ends = np.stack([groups.scales * np.float32(end) + offsets for end in groups.span])
    return np.maximum(np.abs(ends).max(axis=(0, 2)), np.float32(1e-20))[:, None] / 127


def panel_noise_by_scales(groups: AffineGroups) -> F32:
    """What `panel_noise` says of the high limb, without a look at any code."""
    starts = np.arange(0, len(groups.scales), PANEL)
    added, own = high_limb_steps(groups)[:, 0] ** 2, (groups.scales**2).mean(axis=1)
    return np.add.reduceat(added, starts) / np.maximum(np.add.reduceat(own, starts), np.float32(1e-30))


# ---- rounding ----


def _tops(weights: F32) -> F32:
    return np.maximum(np.abs(weights).max(axis=1, keepdims=True), np.float32(1e-20))


def _rounded(weights: F32, scales: F32) -> F32:
    return np.clip(np.rint(weights / scales), -127, 127) * scales


def _least_squares(weights: F32) -> F32:
    return np.concatenate([_least_squares_of(weights[i : i + ROWS]) for i in range(0, len(weights), ROWS)])


def _least_squares_of(weights: F32) -> F32:
    best, error = weights, np.full((len(weights), 1), np.inf, np.float32)
    tops = _tops(weights) / 127
    for clip in CLIPS:
        best, error = _better(weights, best, error, _rounded(weights, tops * np.float32(clip)))
    return best


def _better(weights: F32, best: F32, error: F32, values: F32) -> tuple[F32, F32]:
    """By row, the better of two approximations and its squared error."""
    new = ((values - weights) ** 2).sum(axis=1, keepdims=True)
    return np.where(new < error, values, best), np.minimum(new, error)


def _linear(matrix: Matrix, units: F32, base: int) -> tuple[F32, F32]:
    """4-bit codes as (t M + Z) units, and the low limb t Ml + Zl of M = base Mh + Ml and Z likewise."""
    groups, (n, k) = matrix.groups, matrix.weights.shape
    assert groups.table is not None
    centre = (groups.span[0] + groups.span[1] + 1) // 2
    t = (groups.table[groups.codes].astype(np.float32) - centre).reshape(n, -1, groups.group)
    steps = groups.scales / units
    offsets = centre * steps + (0 if groups.offsets is None else groups.offsets / units)
    m, z = np.rint(steps)[..., None], np.rint(offsets)[..., None]
    low = t * (m - base * np.rint(m / base)) + (z - base * np.rint(z / base))
    return (t * m + z).reshape(n, k) * units, low.reshape(n, k) * units


def _tiles(values: F32) -> F32:
    """Sums over tiles, [panels, tiles of a row]."""
    rows = np.add.reduceat(values, np.arange(0, len(values), PANEL), axis=0)
    return np.add.reduceat(rows, np.arange(0, values.shape[1], TILE), axis=1)


def _spread(tiles: F32, shape: tuple[int, ...]) -> F32:
    return np.repeat(np.repeat(tiles, PANEL, axis=0), TILE, axis=1)[: shape[0], : shape[1]]
