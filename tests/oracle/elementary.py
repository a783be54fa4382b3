"""Elementary functions, operation for operation as native/core/elementary.h."""

from typing import Any

import numpy as np

from tests.oracle.arithmetic import F32, fma

f32 = np.float32
F64 = np.ndarray[Any, np.dtype[np.float64]]

# Lanes that a later `where` discards may overflow or be invalid.
quiet = np.errstate(all="ignore")
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)


def horner(x: F32, *coefficients: float) -> F32:
    """Polynomial by fma, highest coefficient first."""
    result: Any = f32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = fma(result, x, f32(coefficient))
    return result  # type: ignore[no-any-return]


@quiet
def exp(x: F32) -> F32:
    """e^x. Zero where the result would be denormal (x < -87.3365), infinity above 88.7228."""
    x = np.asarray(x, np.float32)
    large = f32(12582912)
    t = fma(x, f32(1.44269502), large)
    n = t - large
    r = fma(n, -LN2_HIGH, x)
    r = fma(n, -LN2_LOW, r)
    p = horner(r, 1.973972539e-4, 1.393511659e-3, 8.333571255e-3, 4.166646302e-2, 1.666666567e-1, 0.5)
    p = fma(p, r * r, r) + f32(1)
    y = (p.view(np.int32) + (t.view(np.int32) << 23)).view(np.float32)
    y = np.where(x < f32(-87.3365402), f32(0), y)
    return np.where(x < f32(88.7228394), y, x + f32(np.inf))


@quiet
def log(x: F32) -> F32:
    """Natural logarithm. -infinity at 0, NaN below."""
    x = np.asarray(x, np.float32)
    denormal = x < np.finfo(np.float32).tiny
    bits = np.where(denormal, x * f32(8388608), x).view(np.int32)
    above = bits - np.int32(0x3F2AAAAB)
    n = (above >> 23).astype(np.float32) - np.where(denormal, f32(23), f32(0))
    f = ((above & np.int32(0x007FFFFF)) + np.int32(0x3F2AAAAB)).view(np.float32) - f32(1)
    p = horner(
        f, -1.287767142e-1, 1.398598850e-1, -1.218775213e-1, 1.400547326e-1, -1.668020785e-1,
        2.001043856e-1, -2.499980479e-1, 3.333321512e-1,
    )  # fmt: skip
    square = f * f
    tail = fma(square, f32(-0.5), square * f * p)
    head = fma(n, LN2_HIGH, f)
    lost = f - fma(-n, LN2_HIGH, head)
    tail = fma(n, LN2_LOW, lost) + tail
    y = np.where(x > 0, head + tail, np.where(x < 0, f32(np.nan), f32(-np.inf)))
    return np.where(x < np.inf, y, x)


@quiet
def tanh(x: F32) -> F32:
    x = np.asarray(x, np.float32)
    a, square = np.abs(x), x * x
    p = horner(
        square, 1.587038743e-3, -7.414170075e-3, 2.130652592e-2, -5.385359749e-2, 1.333224177e-1, -3.333329856e-1
    )
    small = fma(p * square, a, a)
    large = f32(1) - f32(2) / (exp(a + a) + f32(1))
    return np.copysign(np.where(a < f32(0.8), small, large), x)


@quiet
def erf(x: F32) -> F32:
    x = np.asarray(x, np.float32)
    a = np.minimum(f32(4), np.abs(x))
    p = horner(
        a * a, 7.806903159e-5, -7.997853099e-4, 5.187162198e-3, -2.685334720e-2, 1.128357872e-1,
        -3.761262596e-1, 1.283791661e-1,
    )  # fmt: skip
    small = fma(p, a, a)
    log_erfc = horner(
        a, 1.971842285e-4, -3.055621637e-3, 2.227711491e-2, -1.040373817e-1, -6.370597482e-1,
        -1.127749562, -1.774940320e-4,
    )  # fmt: skip
    large = f32(1) - exp(log_erfc)
    return np.copysign(np.where(a < f32(1), small, large), x)


@quiet
def rsqrt(x: F32) -> F32:
    return np.asarray(f32(1) / np.sqrt(np.asarray(x, np.float32)))


def _reduce_angle(x: F32) -> tuple[F64, F64]:
    """x = n pi/2 + r with |r| <= pi/4, as r and n mod 4, in float64."""
    wide = np.asarray(x, np.float32).astype(np.float64)
    n = np.rint(wide * 0.6366197723675814)
    r = ((wide - n * 1.570796325802803) - n * 9.920935791635221e-10) - n * 5.170182981794105e-19
    return r, n - 4.0 * np.floor(n * 0.25)


SINE_TERMS = (1307674368000.0, 6227020800.0, 39916800.0, 362880.0, 5040.0, 120.0, 6.0)  # 15!, 13! ... 3!
COSINE_TERMS = (20922789888000.0, 87178291200.0, 479001600.0, 3628800.0, 40320.0, 720.0, 24.0, 2.0)  # 16! ... 2!


def _taylor(z: F64, factorials: tuple[float, ...]) -> F64:
    """-1/f[-1] + z/f[-2] - z^2/f[-3] + ... for the factorials f, by plain float64 multiplications and additions."""
    result: Any = 0.0
    sign = -1.0 if len(factorials) % 2 else 1.0
    for factorial in factorials:
        result = result * z + sign / factorial
        sign = -sign
    return result  # type: ignore[no-any-return]


def _sine_of(r: F64, quadrant: F64) -> F32:
    z = r * r
    sine = r + r * z * _taylor(z, SINE_TERMS)
    cosine = 1.0 + z * _taylor(z, COSINE_TERMS)
    magnitude = np.where((quadrant == 1) | (quadrant == 3), cosine, sine)
    return np.where(quadrant >= 2, -magnitude, magnitude).astype(np.float32)


@quiet
def sin(x: F32) -> F32:
    return _sine_of(*_reduce_angle(x))


@quiet
def cos(x: F32) -> F32:
    r, quadrant = _reduce_angle(x)
    return _sine_of(r, np.where(quadrant == 3, 0.0, quadrant + 1.0))
