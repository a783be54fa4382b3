import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import (
    Backend,
    ConvWeights,
    DeltaGates,
    DeltaRows,
    OpError,
    StateRows,
    delta_gates,
    delta_rule,
    short_conv,
)
from surefoot.ops.arrays import F32
from surefoot.ops.oracle import states as oracle
from tests.ops.comparing import same_bits

fixtures = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)


def random_rows(rng: np.random.Generator, lengths: list[int]) -> tuple[StateRows, int]:
    """Chunks that load one slot each, or none, and save after some rows; with the number of slots."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    loads = np.where(rng.random(len(lengths)) < 0.3, -1, np.arange(len(lengths))).astype(np.int64)
    num_rows = int(starts[-1])
    saves = np.where(rng.random(num_rows) < 0.4, len(lengths) + np.arange(num_rows), -1).astype(np.int64)
    return StateRows(starts, loads, saves), len(lengths) + num_rows


def floats(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


@fixtures
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), cols=st.integers(1, 600), taps=st.integers(2, 5),
    given_parts=st.tuples(*[st.booleans()] * 4), seed=seeds,
)  # fmt: skip
def test_short_conv_equals_oracle(
    backends: list[Backend], lengths: list[int], cols: int, taps: int, given_parts: tuple[bool, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, num_slots = random_rows(rng, lengths)
    with_gate_in, with_gate_out, with_bias, silu = given_parts
    wide, state = floats(rng, len(rows.saves), 3 * cols), floats(rng, num_slots, taps - 1, cols)
    x, gate_in, gate_out = wide[:, :cols], wide[:, cols : 2 * cols], wide[:, 2 * cols :]
    weights = ConvWeights(floats(rng, taps, cols), floats(rng, cols) if with_bias else None, silu)
    gates = {"gate_in": gate_in if with_gate_in else None, "gate_out": gate_out if with_gate_out else None}
    want, want_state = oracle.short_conv(x, weights, state, rows, **gates)
    for backend in backends:
        y, got_state = np.empty_like(want), state.copy()
        short_conv(backend, x, weights, got_state, rows, **gates, y=y)
        assert same_bits(y, want)
        assert same_bits(got_state, want_state)


@fixtures
@given(rows=st.integers(1, 30), heads=st.integers(1, 50), seed=seeds)
def test_delta_gates_equal_oracle(backends: list[Backend], rows: int, heads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wide = floats(rng, rows, 2 * heads) * np.float32(rng.choice([0.1, 3, 40]))
    rate, bias = -np.abs(floats(rng, heads)), floats(rng, heads)
    want = oracle.delta_gates(wide[:, :heads], wide[:, heads:], rate, bias)
    for backend in backends:
        got = DeltaGates(np.empty((rows, heads), np.float32), np.empty((rows, heads), np.float32))
        delta_gates(backend, wide[:, :heads], wide[:, heads:], rate, bias, got)
        assert same_bits(got.decay, want.decay)
        assert same_bits(got.beta, want.beta)


def delta_inputs(
    rng: np.random.Generator, num_rows: int, key_heads: int, heads: int, key_dim: int, value_dim: int
) -> tuple[DeltaRows, DeltaGates]:
    """Parts of wider rows; keys of length one."""
    q, k, v = key_heads * key_dim, 2 * key_heads * key_dim, 2 * key_heads * key_dim + heads * value_dim
    wide = floats(rng, num_rows, v)
    wide[:, :k] /= np.float32(key_dim**0.5)
    parts = wide[:, :q].reshape(num_rows, key_heads, key_dim), wide[:, q:k].reshape(num_rows, key_heads, key_dim)
    gates = rng.random((2, num_rows, heads)).astype(np.float32)
    return DeltaRows(*parts, wide[:, k:].reshape(num_rows, heads, value_dim)), DeltaGates(gates[0], gates[1])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3), key_heads=st.integers(1, 2), repeat=st.integers(1, 3),
    key_dim=st.integers(2, 20), runs=st.integers(1, 9), tiled=st.booleans(), seed=seeds,
)  # fmt: skip
def test_delta_rule_equals_oracle(
    backends: list[Backend], lengths: list[int], key_heads: int, repeat: int, key_dim: int, runs: int, tiled: bool,
    seed: int,
) -> None:  # fmt: skip
    rng, heads, value_dim = np.random.default_rng(seed), key_heads * repeat, 16 * runs
    rows, num_slots = random_rows(rng, lengths)
    x, gates = delta_inputs(rng, len(rows.saves), key_heads, heads, key_dim, value_dim)
    state = floats(rng, num_slots, heads, key_dim, value_dim)
    want, want_state = oracle.delta_rule(x, gates, state, rows, tiled)
    for backend in backends:
        y, got_state = np.empty_like(want), state.copy()
        delta_rule(backend, x, gates, got_state, rows, tiled, y=y)
        assert same_bits(y, want)
        assert same_bits(got_state, want_state)


def test_the_delta_rule_is_the_delta_rule(backends: list[Backend]) -> None:
    """Against the textbook in float64, over a thousand tokens that fade slowly: the largest error, of the largest
    value."""
    rng, num_rows, dim = np.random.default_rng(1), 1000, 64
    x, _ = delta_inputs(rng, num_rows, 1, 1, dim, dim)
    x.k[:] = x.k / np.linalg.norm(x.k, axis=-1, keepdims=True)
    decay, beta = rng.uniform(0.98, 1, (num_rows, 1)), rng.uniform(0.2, 1, (num_rows, 1))
    gates = DeltaGates(decay.astype(np.float32), beta.astype(np.float32))
    rows = StateRows(np.array([0, num_rows]), np.array([-1]), np.full(num_rows, -1))
    y, state, wide = np.empty((num_rows, 1, dim), np.float32), np.zeros((1, 1, dim, dim), np.float32), []
    delta_rule(backends[0], x, gates, state, rows, False, y=y)
    matrix = np.zeros((dim, dim))
    for row in range(num_rows):
        q, k, v = (part[row, 0].astype(np.float64) for part in (x.q, x.k, x.v))
        matrix = matrix * float(gates.decay[row, 0])
        matrix = matrix + np.outer(k, float(gates.beta[row, 0]) * (v - k @ matrix))
        wide.append(q @ matrix)
    want = np.array(wide)
    assert np.abs(y[:, 0] - want).max() < 2e-6 * np.abs(want).max()


def test_how_rows_are_chunked_does_not_show(backends: list[Backend]) -> None:
    """One chunk of 40 rows, or chunks that go on from each other's slots."""
    rng, heads, dim = np.random.default_rng(2), 2, 32
    x, gates = delta_inputs(rng, 40, 1, heads, dim, dim)
    state, want = np.zeros((2, heads, dim, dim), np.float32), np.empty((40, heads, dim), np.float32)
    whole = StateRows(np.array([0, 40]), np.array([-1]), np.full(40, -1))
    delta_rule(backends[0], x, gates, state, whole, False, y=want)
    for backend in backends:
        start, load = 0, -1
        for length in (1, 16, 2, 21):
            part = slice(start, start + length)
            saves, y = np.full(length, -1), np.empty((length, heads, dim), np.float32)
            saves[-1] = 1 - max(load, 0)
            rows = StateRows(np.array([0, length]), np.array([load]), saves)
            own = DeltaRows(x.q[part], x.k[part], x.v[part])
            delta_rule(backend, own, DeltaGates(gates.decay[part], gates.beta[part]), state, rows, False, y=y)
            assert same_bits(y, want[part])
            start, load = start + length, int(saves[-1])


def test_slots_that_are_not_there_are_refused(backends: list[Backend]) -> None:
    x, weights, state = np.ones((2, 8), np.float32), ConvWeights(np.ones((3, 8), np.float32)), np.zeros((2, 2, 8), "f4")
    for loads, saves in (([2], [-1, -1]), ([0], [-1, 2])):
        rows = StateRows(np.array([0, 2]), np.array(loads), np.array(saves))
        with pytest.raises(OpError, match="outside its range"):
            short_conv(backends[0], x, weights, state, rows, y=np.empty_like(x))
    rows = StateRows(np.array([0, 3]), np.array([0]), np.array([-1, -1]))
    with pytest.raises(OpError, match="does not fit"):
        short_conv(backends[0], x, weights, state, rows, y=np.empty_like(x))
