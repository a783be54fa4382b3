"""Matrix products in float, as native/kernels/float_linear.h."""

import numpy as np

from surefoot.ops.arrays import Array
from tests.oracle.arithmetic import F32, strided_dot


def widen(weights: Array) -> F32:
    """bfloat16 (as uint16) or float32 to float32."""
    if weights.dtype == np.float32:
        return weights
    return (weights.astype(np.uint32) << 16).view(np.float32)


def float_linear(x: F32, weights: Array, bias: F32 | None = None) -> F32:
    y = strided_dot(x[:, None, :], widen(weights)[None, :, :])
    return y if bias is None else y + bias
