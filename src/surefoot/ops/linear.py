"""Integer matrix products: quantised rows times packed weights."""

from collections.abc import Sequence
from ctypes import c_void_p
from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.ops import abi
from surefoot.ops.activations import Activations
from surefoot.ops.arrays import F32, I64, check, empty, pointer, row_stride
from surefoot.ops.backend import Backend
from surefoot.ops.weights import PackedWeights


def linear(
    backend: Backend,
    x: Activations,
    w: PackedWeights,
    bias: F32 | None = None,
    residual: F32 | None = None,
    out: F32 | None = None,
) -> F32:
    """y[r, n] = sum over k of x[r, k] * w[n, k], plus bias[n], plus residual[r, n]."""
    if x.cols != w.k:
        raise ValueError(f"x has {x.cols} columns but the weights take {w.k}")
    y = empty((x.rows, w.n), np.float32) if out is None else out
    check("out", y, np.float32, x.rows, w.n)
    if bias is not None:
        check("bias", bias, np.float32, w.n)
    if residual is not None:
        check("residual", residual, np.float32, x.rows, w.n)
    args = abi.LinearArgs(
        x.struct(), pointer(w.data), pointer(bias), pointer(residual), pointer(y), x.rows, w.k, row_stride(y),
        0 if residual is None else row_stride(residual),
    )  # fmt: skip
    backend.run("linear", args, x, w, bias, residual, y)
    return y


def linear_experts(
    backend: Backend,
    x: Activations,
    experts: Sequence[PackedWeights],
    starts: I64,
    biases: Sequence[F32] | None = None,
    out: F32 | None = None,
) -> F32:
    """Multiplies rows starts[e] to starts[e + 1] of x with expert e's matrix."""
    first = experts[0]
    check("starts", starts, np.int64, len(experts) + 1)
    # While recording, the starts are not computed yet.
    if not backend.recording and (starts[0] != 0 or starts[-1] != x.rows or (np.diff(starts) < 0).any()):
        raise ValueError("starts must rise from 0 to the number of rows")
    if any((e.format, e.n, e.k) != (first.format, first.n, first.k) for e in experts):
        raise ValueError("experts must share one shape and format")
    if x.cols != first.k:
        raise ValueError(f"x has {x.cols} columns but the experts take {first.k}")
    y = empty((x.rows, first.n), np.float32) if out is None else out
    check("out", y, np.float32, x.rows, first.n)
    count = len(experts)
    weight_pointers = _pointers(*(pointer(e.data) for e in experts))
    bias_pointers = None
    if biases is not None:
        for bias in biases:
            check("bias", bias, np.float32, first.n)
        bias_pointers = _pointers(*(pointer(bias) for bias in biases))
    args = abi.LinearExpertsArgs(
        x.struct(), abi.address(weight_pointers), abi.address(bias_pointers), pointer(starts), pointer(y),
        count, first.k, row_stride(y),
    )  # fmt: skip
    backend.run("linear_experts", args, x, experts, biases, weight_pointers, bias_pointers, starts, y)
    return y


@lru_cache(maxsize=1 << 16)
def _pointers(*addresses: int | None) -> Any:
    """A native array of the addresses. It is cached, so that recordings of the same call are equal."""
    return (c_void_p * len(addresses))(*addresses)
