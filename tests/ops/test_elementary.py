"""Elementary functions: every variant has the oracle's bits, and errors are within the bounds of numerics.md."""

import functools
import math

import mpmath
import numpy as np
import pytest

from surefoot.ops import Backend, supported_variants
from surefoot.ops.arrays import F32
from surefoot.ops.elementary import FUNCTIONS, Function, elementary
from tests.ops.comparing import same_bits
from tests.ops.conftest import backend
from tests.oracle import elementary as oracle

# Largest error in ulp, as docs/design/numerics.md states it, and the interval it holds for.
PROMISED: dict[Function, tuple[float, float, float]] = {
    "exp": (0.98, -87.33, 88.72),
    "log": (0.88, 0.0, 3e38),
    "tanh": (1.05, -np.inf, np.inf),
    "erf": (1.09, -np.inf, np.inf),
    "sin": (0.501, -1e7, 1e7),
    "cos": (0.501, -1e7, 1e7),
    "rsqrt": (1.5, 0.0, 3e38),
}
REFERENCE = {
    "exp": mpmath.exp, "log": mpmath.log, "tanh": mpmath.tanh, "erf": mpmath.erf,
    "sin": mpmath.sin, "cos": mpmath.cos, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}  # fmt: skip
EDGES = np.array(
    [0.0, 1e-45, 1.1754942e-38, 1.17549435e-38, 0.5, 0.6666666, 0.66666669, 0.79999995, 0.8, 0.99999994, 1.0, 1.0000001,
     1.3333334, 4.0, 87.33654, 87.336548, 88.0, 88.72283, 88.72284, 104.0, 1e7, 3.4028235e38, np.inf, np.nan],
    np.float32,
)  # fmt: skip


@functools.cache
def every_kind_of_float() -> F32:
    """Every 65521st bit pattern (all exponents, both signs, denormals and NaNs), edge cases, and ordinary values."""
    patterns = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ordinary = np.concatenate([np.linspace(-12, 12, 20001), np.linspace(-90, 90, 20001), np.linspace(0.5, 2, 20001)])
    return np.concatenate([patterns, EDGES, -EDGES, ordinary.astype(np.float32)])


@functools.cache
def expected(function: Function) -> F32:
    result: F32 = getattr(oracle, function)(every_kind_of_float())
    return result


@pytest.mark.parametrize("function", FUNCTIONS)
def test_equals_oracle(backends: list[Backend], function: Function) -> None:
    for each in backends:
        got = elementary(each, function, every_kind_of_float())
        assert same_bits(got, expected(function))


def ulps(got: F32, exact: np.ndarray) -> np.ndarray:
    """The error in units of the exact value's last place."""
    ulp = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126))) - 23)
    return np.abs(got.astype(np.float64) - exact) / ulp


def promised_range(function: Function, x: F32) -> F32:
    _, low, high = PROMISED[function]
    return x[(x > low) & (x < high) & np.isfinite(x)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_error_against_float64(function: Function) -> None:
    """Two million values: all exponents, and densely in the range of models. float64 is exact enough to check
    float32."""
    patterns = np.arange(0, 2**32, 8191, dtype=np.uint64).astype(np.uint32).view(np.float32)
    dense = np.concatenate([np.linspace(-10, 10, 1000003), np.linspace(-90, 90, 300007), np.linspace(0.5, 2, 500009)])
    x = promised_range(function, np.concatenate([patterns, dense.astype(np.float32)]))
    wide = x.astype(np.float64)
    if function == "erf":
        x, wide = x[::8].copy(), wide[::8]
        exact = np.array([math.erf(v) for v in wide])
    else:
        exact = 1 / np.sqrt(wide) if function == "rsqrt" else getattr(np, function)(wide)
    error = ulps(elementary(backend(supported_variants()[0], 1), function, x), exact)
    assert error.max() <= PROMISED[function][0], f"{error.max()} ulp at {x[error.argmax()]!r}"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_error_against_mpmath(function: Function) -> None:
    """The float64 reference itself is correct, for two thousand values against fifty digits."""
    x = promised_range(function, every_kind_of_float())
    x = np.random.default_rng(1).choice(x, 2000)
    with mpmath.workdps(50):
        exact = np.array([float(REFERENCE[function](mpmath.mpf(float(v)))) for v in x])
    error = ulps(elementary(backend(supported_variants()[0], 1), function, x), exact)
    assert error.max() <= PROMISED[function][0], f"{error.max()} ulp at {x[error.argmax()]!r}"


def test_limits() -> None:
    x = np.array([-np.inf, -200, -0.0, 0.0, 200, np.inf], np.float32)
    inf, nan = np.inf, np.nan
    want = {
        "exp": [0, 0, 1, 1, inf, inf],
        "log": [nan, nan, -inf, -inf, np.float32(np.log(200)), inf],
        "tanh": [-1, -1, -0.0, 0.0, 1, 1],
        "erf": [-1, -1, -0.0, 0.0, 1, 1],
    }
    for function, values in want.items():
        got = elementary(backend(supported_variants()[0], 1), function, x)  # type: ignore[arg-type]
        assert same_bits(got, np.array(values, np.float32)), function
