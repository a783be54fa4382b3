"""Quantises rows, as native/kernels/quantise.h."""

import numpy as np

from surefoot.ops.activations import ActivationForm, Activations, padded
from tests.oracle.arithmetic import F32

TWO_LIMB_MAX = np.float32(16256)
ONE_LIMB_MAX = np.float32(127)


def _fixed_point(x: F32, largest: F32, bound: np.float32) -> np.ndarray:
    """Integers nearest to x * (bound / largest), ties to even; zeros if `largest` is (nearly) zero."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(largest > np.float32(1e-30), bound / largest, np.float32(0))
    return np.rint(x * inverse).astype(np.int32)


def quantise(x: F32, form: ActivationForm) -> Activations:
    rows, cols = x.shape
    filled = np.zeros((rows, padded(cols)), np.float32)
    filled[:, :cols] = x
    values = np.zeros((rows, form.limbs, padded(cols)), np.int8)
    if form.limbs == 2:
        largest = np.abs(filled).max(axis=1, keepdims=True, initial=0)
        q = _fixed_point(filled, largest, TWO_LIMB_MAX)
        high = (q + 64) >> 7
        values[:, 0], values[:, 1] = high, q - 128 * high
        return Activations(values, largest / TWO_LIMB_MAX, cols, form)
    group = form.group or cols
    scales = np.empty((rows, form.num_groups(cols)), np.float32)
    for g in range(scales.shape[1]):
        part = slice(g * group, min((g + 1) * group, cols))
        largest = np.abs(filled[:, part]).max(axis=1, keepdims=True)
        values[:, 0, part] = _fixed_point(filled[:, part], largest, ONE_LIMB_MAX)
        scales[:, g] = largest[:, 0] / ONE_LIMB_MAX
    return Activations(values, scales, cols, form)
