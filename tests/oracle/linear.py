"""The integer matmul in plain numpy: expand the weights, multiply exactly, then scale in a fixed order."""

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.activations import Activations
from surefoot.ops.weights import IntegerWeights, expand
from tests.oracle.arithmetic import F32, fma

Integers = NDArray[np.int64]


def _split(w: Integers, limbs: int) -> list[Integers]:
    if limbs == 1:
        return [w]
    high = (w + 64) >> 7
    return [high, w - 128 * high]


def _combine(sums: list[Integers]) -> F32:
    floats = [s.astype(np.int32).astype(np.float32) for s in sums]
    return floats[0] if len(floats) == 1 else fma(floats[0], np.float32(128), floats[1])


def _product(a: Integers, b: Integers) -> Integers:
    """a @ b.T: float64 represents these sums exactly, and numpy multiplies floats faster than integers."""
    product: Integers = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.int64)
    return product


def _sums(x: Integers, w: list[Integers]) -> list[Integers]:
    """The int32 sums of x [rows, limbs, k] times the limbs of w [n, k]; one of the two has a single limb."""
    if x.shape[1] == 1:
        return [_product(x[:, 0], limb) for limb in w]
    return [_product(x[:, limb], w[0]) for limb in range(2)]


def _two_limb_rows(x: Integers, w: Integers, limbs: int) -> F32:
    """x [rows, 2, k] times weights of `limbs` limbs. With two limbs on both sides, the exact sum is rounded once."""
    if limbs == 1:
        return _combine(_sums(x, [w]))
    return _product(128 * x[:, 0] + x[:, 1], w).astype(np.float32)


def linear(x: Activations, weights: IntegerWeights, bias: F32 | None = None, residual: F32 | None = None) -> F32:
    k = x.cols
    values = x.values[:, :, :k].astype(np.int64)
    expanded, limbs = expand(weights), weights.format.limbs
    if x.form.limbs == 2:
        y = _two_limb_rows(values, expanded, limbs) * (x.scales * weights.row_scales)
    else:
        w = _split(expanded, limbs)
        group = x.form.group or k
        y = np.zeros((x.rows, len(weights.row_scales)), np.float32)
        for g in range(x.scales.shape[1]):
            part = slice(g * group, (g + 1) * group)
            y = fma(_combine(_sums(values[:, :, part], [limb[:, part] for limb in w])), x.scales[:, g : g + 1], y)
        y = y * weights.row_scales
    if bias is not None:
        y = y + bias
    return y if residual is None else residual + y


def linear_experts(
    x: Activations, experts: list[IntegerWeights], starts: NDArray[np.int64], biases: list[F32] | None = None
) -> F32:
    parts = []
    for e, weights in enumerate(experts):
        rows = slice(starts[e], starts[e + 1])
        part = Activations(x.values[rows], x.scales[rows], x.cols, x.form)
        parts.append(linear(part, weights, None if biases is None else biases[e]))
    return np.concatenate(parts)
