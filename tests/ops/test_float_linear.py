import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend, float_linear
from tests.oracle import float_linear as oracle


def draw(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    """Normal values over many magnitudes, as float32 or as bfloat16 in uint16."""
    values = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 6, shape)).astype(np.float32)
    return values if dtype is np.float32 else (values.view(np.uint32) >> 16).astype(np.uint16)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 70),
    n=st.integers(1, 60),
    k=st.one_of(st.integers(1, 100), st.integers(500, 1100)),
    dtype=st.sampled_from([np.float32, np.uint16]),
    biased=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_oracle(
    backends: list[Backend], rows: int, n: int, k: int, dtype: type, biased: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, weights = draw(rng, np.float32, rows, k), draw(rng, dtype, n, k)
    bias = draw(rng, np.float32, n) if biased else None
    want = oracle.float_linear(x, weights, bias)
    for backend in backends:
        got = float_linear(backend, x, weights, bias)
        assert np.array_equal(got.view(np.int32), want.view(np.int32))


def test_rows_and_outputs_stand_alone(backends: list[Backend]) -> None:
    """A row's bits do not depend on other rows, nor an output's on other outputs."""
    rng = np.random.default_rng(5)
    x, weights = draw(rng, np.float32, 131, 333), draw(rng, np.uint16, 77, 333)
    whole = float_linear(backends[1], x, weights)
    for row, output in ((0, 0), (63, 31), (130, 76)):
        alone = float_linear(backends[0], x[row : row + 1], weights[output : output + 1])
        assert alone[0, 0].tobytes() == whole[row, output].tobytes()


def test_strided_arrays(backends: list[Backend]) -> None:
    rng = np.random.default_rng(6)
    x, weights, out = draw(rng, np.float32, 5, 90), draw(rng, np.float32, 7, 80), np.zeros((5, 20), np.float32)
    float_linear(backends[0], x[:, 3:50], weights[:, 1:48], out=out[:, 2:9])
    want = oracle.float_linear(x[:, 3:50], weights[:, 1:48])
    assert np.array_equal(out[:, 2:9], want)
    assert not out[:, :2].any()
    assert not out[:, 9:].any()


def test_close_to_numpy(backends: list[Backend]) -> None:
    """The oracle computes a matrix product."""
    rng = np.random.default_rng(7)
    x, weights = rng.standard_normal((3, 500)).astype(np.float32), rng.standard_normal((9, 500)).astype(np.float32)
    got = float_linear(backends[0], x, weights)
    np.testing.assert_allclose(got, x.astype(np.float64) @ weights.T.astype(np.float64), rtol=0, atol=1e-4)


def test_refuses_other_types(backends: list[Backend]) -> None:
    with pytest.raises(TypeError, match="bfloat16"):
        float_linear(backends[0], np.zeros((1, 4), np.float32), np.zeros((2, 4), np.float16))
