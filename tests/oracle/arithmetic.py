"""The contract's float rules in numpy: fma with one rounding, sixteen strided sums, one tree, one ranking order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
LANES = 16


def fma(a: Any, b: Any, c: Any) -> F32:
    """a * b + c in float32 with a single rounding.

    The product is exact in float64. The sum is rounded to odd there (the last bit is set if the sum is inexact). Then
    rounding to float32 gives the same result as a single rounding.
    """
    product = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32).astype(np.float64)
    addend = np.asarray(c, np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):
        total = np.asarray(product + addend)
        back = total - product
        error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64).copy()
    inexact = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    away = (error > 0) == (total > 0)
    bits = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    with np.errstate(over="ignore", under="ignore"):
        return bits.view(np.float64).astype(np.float32)


def tree(lanes: F32) -> F32:
    """Sum of the last axis, of length 16: lane i with lane i + 8, then + 4, + 2, + 1."""
    for half in (8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
    return lanes[..., 0]


def strided(x: F32) -> F32:
    """Values [..., n] as [..., steps, 16], padded with zeros: element k belongs to lane k % 16."""
    steps = -(-x.shape[-1] // LANES)
    filled = np.zeros((*x.shape[:-1], steps * LANES), np.float32)
    filled[..., : x.shape[-1]] = x
    return filled.reshape(*x.shape[:-1], steps, LANES)


def strided_sum(x: F32) -> F32:
    """Sum of the last axis in the contract's order: sixteen partial sums, then the tree."""
    steps = strided(x)
    lanes = np.zeros((*x.shape[:-1], LANES), np.float32)
    for step in range(steps.shape[-2]):
        lanes = lanes + steps[..., step, :]
    return tree(lanes)


def strided_dot(a: F32, b: F32) -> F32:
    """Dot product over the last axis: sixteen partial sums by fma, then the tree."""
    a, b = strided(a), strided(b)
    lanes = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), LANES), np.float32)
    for step in range(a.shape[-2]):
        lanes = fma(a[..., step, :], b[..., step, :], lanes)
    return tree(lanes)


def rank(values: F32) -> NDArray[np.int64]:
    """Indices along the last axis, sorted by value: larger first, ties to the lower index."""
    return np.argsort(-values, axis=-1, kind="stable")
