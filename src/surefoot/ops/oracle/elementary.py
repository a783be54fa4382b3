"""Elementary functions, operation for operation as native/core/elementary.h."""

from typing import Any

import numpy as np

from surefoot.ops.oracle.arithmetic import F32, fma

f32 = np.float32


def horner(x: F32, *coefficients: float) -> F32:
    """Polynomial by fma, highest coefficient first."""
    result: Any = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = fma(result, x, f32(coefficient))
    return result  # type: ignore[no-any-return]


def exp(x: F32) -> F32:
    """e^x. Zero below -87, infinity above 88.37."""
    x = np.asarray(x, np.float32)
    clamped = np.minimum(np.maximum(x, f32(-87)), f32(88.37))
    n = np.rint(clamped * f32(1.44269504))
    r = fma(n, f32(-0.693359375), clamped)
    r = fma(n, f32(2.12194440e-4), r)
    p = horner(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    p = fma(p, r * r, r) + f32(1)
    power = ((n.astype(np.int32) + 127) << 23).view(np.float32)
    y = np.where(x < f32(-87), f32(0), p * power)
    return np.where(x > f32(88.37), f32(np.inf), y)
