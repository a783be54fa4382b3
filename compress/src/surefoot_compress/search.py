"""Searches scales (and offsets) of groups of weights for the lowest squared error, weighted by column importance."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.arrays import F32
from surefoot_compress.levels import Levels

SHRINKS = np.linspace(0.6, 1.05, 16, dtype=np.float32)  # factors on a group's range that the search tries
REFITS = 2  # rounds of least squares for the scale (and offset), given the codes
PART = 65536  # weights searched at once: they stay in the CPU's cache
MIN_GROUPS = 64  # searched at once
ONE = np.float32(1)

F3 = NDArray[np.float32]  # [n, groups, group]


def safe(scales: F32) -> F32:
    """The scales without zeros, which could not be divided by. A group of zeros has code 0 whatever its scale."""
    return np.where(np.abs(scales) > 1e-12, scales, np.float32(1e-6)).astype(np.float32)


def as_half(scales: F32) -> F32:
    """The scales rounded to half precision, as files store them."""
    return safe(scales.astype(np.float16).astype(np.float32))


def search_scale(levels: Levels, x: F3, weigh: F3, top: F32, signs: tuple[int, ...] = (1,)) -> F32:
    """The scale of each group with the lowest weighted squared error; the search starts at `top`."""
    (scales,) = _in_parts(partial(_scale, levels, signs), x, weigh, top)
    return scales


def best_power(levels: Levels, x: F3, weigh: F3, top: F32) -> F32:
    """Same as `search_scale`, among powers of two."""
    (scales,) = _in_parts(partial(_power, levels), x, weigh, top)
    return scales


def zero_point(steps: int, low: F32, high: F32) -> tuple[F32, F32]:
    """The scale from `low` to `high`, and the code among 0 to `steps` that stands for 0."""
    scales = as_half(safe((high - low) / np.float32(steps)))
    return scales, np.clip(np.rint(-low / scales), 0, steps)


def search_zero(steps: int, x: F3, weigh: F3, low: F32, high: F32) -> tuple[F32, F32]:
    """Same as `search_scale`, with a zero point."""
    scales, zeros = _in_parts(partial(_zero, steps), x, weigh, low, high)
    return scales, zeros


def search_affine(steps: int, x: F3, weigh: F3, low: F32, high: F32) -> tuple[F32, F32]:
    """The scale and lowest value of each group, for codes 0 to `steps`, with the lowest weighted squared error."""
    scales, lows = _in_parts(partial(_affine, steps), x, weigh, low, high)
    return scales, lows


# ---- Below, weights are [group, groups]: the groups of one part side by side. Values of a group are [groups]. ----


def _in_parts(search: Callable[..., tuple[F32, ...]], x: F3, weigh: F3, *ends: F32) -> list[F32]:
    n, groups, size = x.shape
    rows = max(-(-MIN_GROUPS // groups), PART // (groups * size))
    parts = []
    for start in range(0, n, rows):
        part = x[start : start + rows]
        weights = np.broadcast_to(weigh, part.shape)
        group_ends = (end[start : start + rows].ravel() for end in ends)
        parts.append(search(_side_by_side(part), _side_by_side(weights), *group_ends))
    return [np.concatenate(values).reshape(n, groups) for values in zip(*parts, strict=True)]


def _side_by_side(x: F3) -> F32:
    return np.ascontiguousarray(x.reshape(-1, x.shape[2]).T)


def _dot(a: F32, b: F32) -> F32:
    sums: F32 = np.einsum("ij,ij->j", a, b)
    return sums


def _ratio(top: F32, bottom: F32, otherwise: F32) -> F32:
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), otherwise).astype(np.float32)


def _scale(levels: Levels, signs: tuple[int, ...], x: F32, weigh: F32, top: F32) -> tuple[F32]:
    best, lowest, weighed = top, np.full(top.shape, np.inf, np.float32), weigh * x
    for shrink in np.outer(signs, SHRINKS).astype(np.float32).ravel():
        scales = top * shrink
        for _ in range(REFITS):
            level = levels.nearest(x * (ONE / scales))
            scales = safe(_ratio(_dot(weighed, level), _dot(weigh * level, level), scales))
        off = x - level * scales
        error = _dot(weigh * off, off)
        better = error < lowest
        best, lowest = np.where(better, scales, best), np.where(better, error, lowest)
    return (best,)


def _power(levels: Levels, x: F32, weigh: F32, top: F32) -> tuple[F32]:
    nearest: F32 = np.exp2(np.rint(np.log2(top))).astype(np.float32)
    best, lowest = nearest, np.full(top.shape, np.inf, np.float32)
    for power in (0.5, 1.0, 2.0):
        scales = nearest * np.float32(power)
        off = x - levels.nearest(x / scales) * scales
        error = _dot(weigh * off, off)
        best, lowest = np.where(error < lowest, scales, best), np.minimum(error, lowest)
    return (best,)


def _zero(steps: int, x: F32, weigh: F32, low: F32, high: F32) -> tuple[F32, F32]:
    best, lowest, weighed = zero_point(steps, low, high), np.full(low.shape, np.inf, np.float32), weigh * x
    for shrink in SHRINKS:
        scales, zeros = zero_point(steps, low * shrink, high * shrink)
        for _ in range(REFITS):
            level: F32 = np.rint(x * (ONE / scales))
            np.clip(level, -zeros, steps - zeros, out=level)
            scales = as_half(_ratio(_dot(weighed, level), _dot(weigh * level, level), scales))
        off = x - level * scales
        error = _dot(weigh * off, off)
        better = (error < lowest) & (scales > 0)
        best = np.where(better, scales, best[0]), np.where(better, zeros, best[1])
        lowest = np.where(better, error, lowest)
    return best


def _affine(steps: int, x: F32, weigh: F32, low: F32, high: F32) -> tuple[F32, F32]:
    best = safe((high - low) / np.float32(steps)), low
    lowest, weighed = np.full(low.shape, np.inf, np.float32), weigh * x
    total, mean_x = weigh.sum(axis=0), weighed.sum(axis=0)
    for shrink in SHRINKS:
        scales, lows = safe((high - low) * shrink / np.float32(steps)), low * shrink
        for _ in range(REFITS):
            code = (x - lows) * (ONE / scales)
            np.clip(np.rint(code, out=code), 0, steps, out=code)
            coded = weigh * code
            mean_c, cc, cx = coded.sum(axis=0), _dot(coded, code), _dot(weighed, code)
            scales = safe(_ratio(total * cx - mean_c * mean_x, total * cc - mean_c**2, scales))
            lows = (mean_x - scales * mean_c) / total
        off = x - code * scales - lows
        error = _dot(weigh * off, off)
        better = (error < lowest) & (scales > 0)
        best = np.where(better, scales, best[0]), np.where(better, lows, best[1])
        lowest = np.where(better, error, lowest)
    return best
