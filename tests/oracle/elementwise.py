"""softcap, add and embed, as native/kernels/elementwise.cpp."""

import numpy as np

from surefoot.ops.arrays import I64, Array
from tests.oracle.arithmetic import F32
from tests.oracle.elementary import tanh


def softcap(x: F32, cap: float) -> F32:
    return np.float32(cap) * tanh(x / np.float32(cap))


def add(a: F32, b: F32 | None, scale: float) -> F32:
    return (a if b is None else a + b) * np.float32(scale)


def embed(ids: I64, table: Array, scale: float) -> F32:
    rows = table[ids]
    if table.dtype == np.uint16:
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    wide: F32 = rows * np.float32(scale)
    return wide
