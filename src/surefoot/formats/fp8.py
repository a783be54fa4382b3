"""Decodes FP8 weights (e4m3), and rounds them to int8 codes in groups."""

import numpy as np

from surefoot.formats.grid import AffineGroups
from surefoot.ops.arrays import F32, U8


def _e4m3_values() -> F32:
    """The values of all bytes: sign, four bits of exponent, three of mantissa; no infinity, one NaN of each sign."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    values = np.where(exponents > 0, np.ldexp(8.0 + mantissas, exponents - 10), np.ldexp(1.0 * mantissas, -9))
    values[(exponents == 15) & (mantissas == 7)] = np.nan
    signed: F32 = np.where(codes < 128, values, -values).astype(np.float32)
    return signed


E4M3 = _e4m3_values()


def e4m3_floats(codes: U8) -> F32:
    return E4M3[codes]


def nearest_groups(values: F32, scales: F32, group: int) -> AffineGroups:
    """E4M3 values [n, k] with scales [n, groups] as int8 codes. The step of a group is a power of two.

    A group's largest power of two is code 64. Values down to 1/8 of it are exact, with all three mantissa bits. Smaller
    values are rounded to a 64th of it, which is an eighth of FP8's own step at the group's top."""
    n, k = values.shape
    grouped = values.reshape(n, -1, group)
    _, exponents = np.frexp(np.abs(grouped).max(axis=2))
    steps = np.ldexp(np.float32(1), exponents - 7)
    codes = np.rint(grouped / steps[..., None]).astype(np.int8).reshape(n, k)
    return AffineGroups(codes, group, scales * steps, None, None, (-127, 127))
