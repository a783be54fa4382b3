"""Norms, as native/kernels/norm.cpp, gated_norm.cpp and row_spread.cpp."""

import numpy as np

from surefoot.ops.glu import GluForm
from surefoot.ops.norms import NormForm
from tests.oracle.arithmetic import F32, fma, strided_dot, strided_sum
from tests.oracle.glu import glu

f32 = np.float32


def _inverse_root(squares: F32, cols: int, eps: float) -> F32:
    root: F32 = f32(1) / np.sqrt(squares / f32(cols) + f32(eps))
    return root[:, None]


def norm(
    form: NormForm, x: F32, weight: F32 | None = None, bias: F32 | None = None, residual: F32 | None = None
) -> tuple[F32, F32]:
    """h and y."""
    cols = x.shape[1]
    h = x if residual is None else x + residual
    d = h if form.kind == "rms" else h - (strided_sum(h) / f32(cols))[:, None]
    scaled = d * _inverse_root(strided_dot(d, d), cols, form.eps)
    w = f32(1) if weight is None else f32(form.weight_offset) + weight
    return h, scaled * w if bias is None else fma(scaled, w, bias)


@np.errstate(over="ignore", under="ignore")
def gated_norm(eps: float, groups: int, x: F32, gate: F32, weight: F32) -> F32:
    h = glu(GluForm("silu"), gate, x)
    parts = h.reshape(-1, h.shape[1] // groups)
    scaled: F32 = (parts * _inverse_root(strided_dot(parts, parts), parts.shape[1], eps)).reshape(h.shape)
    return scaled * weight


def _mean_square(x: F32) -> F32:
    squares: F32 = strided_dot(x, x) / f32(x.shape[1])
    return squares


def sparsify(x: F32, spreads: float) -> F32:
    mean = strided_sum(x) / f32(x.shape[1])
    least = fma(f32(spreads), np.sqrt(_mean_square(x - mean[:, None])), mean)
    kept: F32 = np.maximum(f32(0), x - least[:, None])
    return kept


def match_rms(x: F32, y: F32, least: float) -> F32:
    scale = np.sqrt(_mean_square(x)) / np.sqrt(np.maximum(f32(least), _mean_square(y)))
    return (y * scale[:, None]).astype(np.float32)
