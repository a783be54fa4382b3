import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import Backend, OpError, add, embed, softcap
from tests.ops.comparing import same_bits
from tests.oracle import elementwise as oracle

fixtures = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Past 8,192 elements an array is shared out over the threads.
counts = st.one_of(st.integers(0, 100), st.integers(8000, 40000))
seeds = st.integers(0, 2**32 - 1)


@fixtures
@given(count=counts, cap=st.sampled_from([30.0, 50.0, 1.3]), seed=seeds)
def test_softcap_equals_oracle(backends: list[Backend], count: int, cap: float, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(count) * 40).astype(np.float32)
    want = oracle.softcap(x, cap)
    assert np.allclose(want, cap * np.tanh(x.astype(np.float64) / cap), rtol=3e-7, atol=0)
    for backend in backends:
        assert same_bits(softcap(backend, x, cap), want)


@fixtures
@given(count=counts, scale=st.sampled_from([1.0, 0.22, 12.0]), with_b=st.booleans(), seed=seeds)
def test_add_equals_oracle(backends: list[Backend], count: int, scale: float, with_b: bool, seed: int) -> None:
    a, other = np.random.default_rng(seed).standard_normal((2, count)).astype(np.float32)
    b = other if with_b else None
    want = oracle.add(a, b, scale)
    for backend in backends:
        y = a.copy()
        add(backend, y, b, scale, out=y)
        assert same_bits(y, want)


@fixtures
@given(
    rows=st.integers(0, 60), vocab=st.integers(1, 50), cols=st.integers(1, 700),
    dtype=st.sampled_from([np.float32, np.uint16]), scale=st.sampled_from([1.0, 45.25]), seed=seeds,
)  # fmt: skip
def test_embed_equals_oracle(
    backends: list[Backend], rows: int, vocab: int, cols: int, dtype: type, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((vocab, cols)).astype(np.float32)
    table = values if dtype is np.float32 else (values.view(np.uint32) >> 16).astype(np.uint16)
    ids = rng.integers(0, vocab, rows)
    want = oracle.embed(ids, table, scale)
    for backend in backends:
        assert same_bits(embed(backend, ids, table, scale), want)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_embed_refuses_ids_outside_the_table(backends: list[Backend], wrong: int) -> None:
    with pytest.raises(OpError, match="outside"):
        embed(backends[0], np.array([0, wrong]), np.ones((5, 8), np.float32))
