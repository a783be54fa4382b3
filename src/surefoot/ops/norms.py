"""RMSNorm and LayerNorm, with the residual sum before and the quantising after in the same pass."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.ops import abi
from surefoot.ops.activations import Activations
from surefoot.ops.arrays import F32, check, head_stride, pointer, row_stride
from surefoot.ops.backend import Backend


@dataclass(frozen=True)
class NormForm:
    """Which norm. weight_offset is 1 where a model stores weights less one (Gemma)."""

    kind: Literal["rms", "layer"] = "rms"
    eps: float = 1e-6
    weight_offset: float = 0.0


def norm(
    backend: Backend,
    form: NormForm,
    x: F32,
    weight: F32 | None = None,
    bias: F32 | None = None,
    residual: F32 | None = None,
    *,
    h: F32 | None = None,
    y: F32 | None = None,
    quantised: Activations | None = None,
) -> None:
    """h = x + residual; y = norm(h) * weight + bias; quantised = y in fixed point. Writes the outputs that are given.

    h may be x or the residual itself, and y may be any of them.
    """
    check("x", x, np.float32, None, None)
    rows, cols = x.shape
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            check(name, vector, np.float32, cols)
    for name, array in (("residual", residual), ("h", h), ("y", y)):
        if array is not None:
            check(name, array, np.float32, rows, cols)
    if quantised is not None:
        quantised.check(rows, cols)
    args = abi.NormArgs(
        pointer(x), pointer(residual), pointer(weight), pointer(bias), pointer(h), pointer(y),
        abi.ActivationsStruct() if quantised is None else quantised.struct(),
        rows, cols, row_stride(x), _stride(residual), _stride(h), _stride(y),
        form.eps, form.weight_offset, int(form.kind == "layer"), 1,
    )  # fmt: skip
    backend.run("norm", args, x, residual, weight, bias, h, y, quantised)


def norm_heads(backend: Backend, form: NormForm, x: F32, weight: F32 | None = None, bias: F32 | None = None) -> None:
    """Norm each head of x [rows, heads, head_dim] by itself, in place."""
    check("x", x, np.float32, None, None, None)
    rows, heads, dim = x.shape
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            check(name, vector, np.float32, dim)
    stride = head_stride(x)
    args = abi.NormArgs(
        pointer(x), None, pointer(weight), pointer(bias), None, pointer(x), abi.ActivationsStruct(),
        rows * heads, dim, stride, 0, 0, stride, form.eps, form.weight_offset, int(form.kind == "layer"), heads,
    )  # fmt: skip
    backend.run("norm", args, x, weight, bias)


def gated_norm(
    backend: Backend,
    eps: float,
    groups: int,
    x: F32,
    gate: F32,
    weight: F32,
    *,
    y: F32 | None = None,
    quantised: Activations | None = None,
) -> None:
    """y = norm(silu(gate) * x) * weight, each of `groups` runs of columns normed by itself; quantised = y in fixed
    point. Writes the outputs that are given."""
    check("x", x, np.float32, None, None)
    rows, cols = x.shape
    check("gate", gate, np.float32, rows, cols)
    check("weight", weight, np.float32, cols)
    if y is not None:
        check("y", y, np.float32, rows, cols)
    if quantised is not None:
        quantised.check(rows, cols)
    args = abi.GatedNormArgs(
        pointer(x), pointer(gate), pointer(weight), pointer(y),
        abi.ActivationsStruct() if quantised is None else quantised.struct(),
        rows, cols, groups, row_stride(x), row_stride(gate), _stride(y), eps,
    )  # fmt: skip
    backend.run("gated_norm", args, x, gate, weight, y, quantised)


def sparsify(backend: Backend, x: F32, spreads: float) -> None:
    """x = max(0, x - bound) in place. A row's bound is its mean plus `spreads` standard deviations."""
    check("x", x, np.float32, None, None)
    backend.run("sparsify", abi.SparsifyArgs(pointer(x), *x.shape, row_stride(x), spreads), x)


def match_rms(backend: Backend, x: F32, y: F32, least: float) -> None:
    """Scales rows of y in place to the root mean square of x's rows. least: what y's mean square counts as, where it is
    less."""
    check("x", x, np.float32, None, None)
    check("y", y, np.float32, *x.shape)
    args = abi.MatchRmsArgs(pointer(x), pointer(y), *x.shape, row_stride(x), row_stride(y), least)
    backend.run("match_rms", args, x, y)


def _stride(array: F32 | None) -> int:
    return 0 if array is None else row_stride(array)
