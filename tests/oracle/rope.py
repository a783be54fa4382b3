"""Rotary embedding, as native/kernels/rope.cpp."""

import numpy as np

from surefoot.ops.arrays import I64
from tests.oracle.arithmetic import F32, fma
from tests.oracle.elementary import cos, sin


def rope_table(positions: I64, inv_freq: F32, scale: float = 1.0, row_scales: F32 | None = None) -> tuple[F32, F32]:
    """cos and sin, [rows, pairs]."""
    angle = positions.astype(np.float32)[:, None] * inv_freq
    scales = np.float32(scale) * (np.ones(len(positions), np.float32) if row_scales is None else row_scales)
    return cos(angle) * scales[:, None], sin(angle) * scales[:, None]


def rope(x: F32, cosines: F32, sines: F32, pairing: str) -> F32:
    """x [rows, heads, head_dim], with the first 2 * pairs lanes of each head rotated."""
    pairs = cosines.shape[1]
    halves = slice(0, pairs), slice(pairs, 2 * pairs)
    neighbours = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    first, second = halves if pairing == "halves" else neighbours
    a, b, c, s = x[..., first], x[..., second], cosines[:, None], sines[:, None]
    y = x.copy()
    y[..., first] = fma(-b, s, a * c)
    y[..., second] = fma(a, s, b * c)
    return y
