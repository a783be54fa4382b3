"""Comparisons by bit pattern: the contract's `==`."""

import numpy as np

from surefoot.ops import Activations
from surefoot.ops.arrays import F32


def same_bits(got: F32, want: F32) -> bool:
    """Whether two arrays are equal in shape and in every bit; all NaNs count as equal."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    both_nan = np.isnan(got) & np.isnan(want)
    bits = np.int32 if got.dtype == np.float32 else np.int64
    return bool(np.all(both_nan | (np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(want).view(bits))))


def same_rows(got: Activations, want: Activations) -> bool:
    return np.array_equal(got.values, want.values) and same_bits(got.scales, want.scales)
