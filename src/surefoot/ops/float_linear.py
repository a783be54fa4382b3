"""Matrix products in float, for reference and evaluation: weights in float32 or bfloat16."""

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, Array, check, empty, pointer, row_stride
from surefoot.ops.backend import Backend

# bfloat16 weights are uint16 arrays: the upper halves of float32 values.
DTYPES = {np.dtype(np.float32): 0, np.dtype(np.uint16): 1}


def float_linear(backend: Backend, x: F32, weights: Array, bias: F32 | None = None, out: F32 | None = None) -> F32:
    """x @ weights.T + bias, for weights [n, k] in float32 or (as uint16) bfloat16."""
    if weights.dtype not in DTYPES:
        raise TypeError(f"weights must be float32 or uint16 (bfloat16), not {weights.dtype}")
    check("x", x, np.float32, None, None)
    rows, k = x.shape
    check("weights", weights, weights.dtype, None, k)
    n = weights.shape[0]
    if bias is not None:
        check("bias", bias, np.float32, n)
    if out is None:
        out = empty((rows, n), np.float32)
    check("out", out, np.float32, rows, n)
    args = abi.FloatLinearArgs(
        pointer(x), pointer(weights), pointer(bias), pointer(out), rows, n, k,
        row_stride(x), row_stride(weights), row_stride(out), DTYPES[weights.dtype],
    )  # fmt: skip
    backend.run("float_linear", args, x, weights, bias, out)
    return out
