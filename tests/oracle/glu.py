"""Activations of the feed-forward layer, as native/kernels/glu.h."""

import numpy as np

from surefoot.ops.glu import GluForm
from tests.oracle.arithmetic import F32, fma
from tests.oracle.elementary import erf, exp

f32 = np.float32


def _logistic(x: F32, t: F32) -> F32:
    return x / (f32(1) + exp(-t))


def activate(form: GluForm, x: F32) -> F32:
    match form.kind:
        case "silu":
            return _logistic(x, x)
        case "gelu":
            return x * f32(0.5) * (f32(1) + erf(x * f32(0.707106781)))
        case "gelu_tanh":
            return _logistic(x, x * fma(x * x, f32(0.0713548163), f32(1.59576912)))
        case "sigmoid":
            return _logistic(np.ones_like(x), x)
        case "relu2":
            return np.maximum(f32(0), x) * np.maximum(f32(0), x)
        case "clamped":
            low = np.minimum(f32(form.limit), x)
            return _logistic(low, f32(form.alpha) * low)


@np.errstate(over="ignore", under="ignore")
def glu(form: GluForm, gate: F32, up: F32 | None = None) -> F32:
    if up is None:
        return activate(form, gate)
    if form.kind == "clamped":
        limit = f32(form.limit)
        up = np.maximum(-limit, np.minimum(limit, up)) + f32(1)
    return activate(form, gate) * up
