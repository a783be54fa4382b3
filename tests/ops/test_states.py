from collections.abc import Iterator, Sequence

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
    ScanGates,
    ScanRows,
    StateRows,
    delta_gates,
    delta_rule,
    short_conv,
    ssd_gates,
    ssd_scan,
)
from surefoot.ops.arrays import F32
from tests.ops.comparing import same_bits
from tests.oracle import states as oracle

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
@given(rows=st.integers(1, 30), decays=st.integers(1, 50), betas=st.integers(1, 50), seed=seeds)
def test_delta_gates_equal_oracle(backends: list[Backend], rows: int, decays: int, betas: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wide = floats(rng, rows, decays + betas) * np.float32(rng.choice([0.1, 3, 40]))
    rate, bias = -np.abs(floats(rng, decays)), floats(rng, decays)
    want = oracle.delta_gates(wide[:, :decays], wide[:, decays:], rate, bias)
    for backend in backends:
        got = DeltaGates(np.empty((rows, decays), np.float32), np.empty((rows, betas), np.float32))
        delta_gates(backend, wide[:, :decays], wide[:, decays:], rate, bias, got)
        assert same_bits(got.decay, want.decay)
        assert same_bits(got.beta, want.beta)


def delta_inputs(
    rng: np.random.Generator, num_rows: int, key_heads: int, heads: int, key_dim: int, value_dim: int,
    by_lane: bool = False,
) -> tuple[DeltaRows, DeltaGates]:  # fmt: skip
    """Parts of wider rows; keys of length one."""
    q, k, v = key_heads * key_dim, 2 * key_heads * key_dim, 2 * key_heads * key_dim + heads * value_dim
    wide = floats(rng, num_rows, v)
    wide[:, :k] /= np.float32(key_dim**0.5)
    parts = wide[:, :q].reshape(num_rows, key_heads, key_dim), wide[:, q:k].reshape(num_rows, key_heads, key_dim)
    gates = rng.random((2, num_rows, heads)).astype(np.float32)
    decay = rng.random((num_rows, heads * key_dim)).astype(np.float32) if by_lane else gates[0]
    return DeltaRows(*parts, wide[:, k:].reshape(num_rows, heads, value_dim)), DeltaGates(decay, gates[1])


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3), key_heads=st.integers(1, 2), repeat=st.integers(1, 3),
    key_dim=st.integers(2, 20), runs=st.integers(1, 9), tiled=st.booleans(), by_lane=st.booleans(), seed=seeds,
)  # fmt: skip
def test_delta_rule_equals_oracle(
    backends: list[Backend], lengths: list[int], key_heads: int, repeat: int, key_dim: int, runs: int, tiled: bool,
    by_lane: bool, seed: int,
) -> None:  # fmt: skip
    rng, heads, value_dim = np.random.default_rng(seed), key_heads * repeat, 16 * runs
    rows, num_slots = random_rows(rng, lengths)
    x, gates = delta_inputs(rng, len(rows.saves), key_heads, heads, key_dim, value_dim, by_lane)
    state = floats(rng, num_slots, heads, key_dim, value_dim)
    want, want_state = oracle.delta_rule(x, gates, state, rows, tiled)
    for backend in backends:
        y, got_state = np.empty_like(want), state.copy()
        delta_rule(backend, x, gates, got_state, rows, tiled, y=y)
        assert same_bits(y, want)
        assert same_bits(got_state, want_state)


@pytest.mark.parametrize("by_lane", [False, True])
def test_the_delta_rule_is_the_delta_rule(backends: list[Backend], by_lane: bool) -> None:
    """Against the textbook in float64, over a thousand tokens that fade slowly: the largest error, of the largest
    value."""
    rng, num_rows, dim = np.random.default_rng(1), 1000, 64
    x, _ = delta_inputs(rng, num_rows, 1, 1, dim, dim)
    x.k[:] = x.k / np.linalg.norm(x.k, axis=-1, keepdims=True)
    decay, beta = rng.uniform(0.98, 1, (num_rows, dim if by_lane else 1)), rng.uniform(0.2, 1, (num_rows, 1))
    gates = DeltaGates(decay.astype(np.float32), beta.astype(np.float32))
    rows = StateRows(np.array([0, num_rows]), np.array([-1]), np.full(num_rows, -1))
    y, state, wide = np.empty((num_rows, 1, dim), np.float32), np.zeros((1, 1, dim, dim), np.float32), []
    delta_rule(backends[0], x, gates, state, rows, False, y=y)
    matrix = np.zeros((dim, dim))
    for row in range(num_rows):
        q, k, v = (part[row, 0].astype(np.float64) for part in (x.q, x.k, x.v))
        matrix = matrix * gates.decay[row].astype(np.float64)[:, None]
        matrix = matrix + np.outer(k, float(gates.beta[row, 0]) * (v - k @ matrix))
        wide.append(q @ matrix)
    want = np.array(wide)
    assert np.abs(y[:, 0] - want).max() < 2e-6 * np.abs(want).max()


def successive_chunks(lengths: Sequence[int]) -> Iterator[tuple[slice, StateRows]]:
    """Chunks of these lengths that go on from each other's slots, 0 and 1 in turn: their rows, and what they load and
    save."""
    start, load = 0, -1
    for length in lengths:
        saves = np.full(length, -1)
        saves[-1] = 1 - max(load, 0)
        yield slice(start, start + length), StateRows(np.array([0, length]), np.array([load]), saves)
        start, load = start + length, int(saves[-1])


def test_how_rows_are_chunked_does_not_show(backends: list[Backend]) -> None:
    """One chunk of 40 rows, or chunks that go on from each other's slots."""
    rng, heads, dim = np.random.default_rng(2), 2, 32
    x, gates = delta_inputs(rng, 40, 1, heads, dim, dim)
    state, want = np.zeros((2, heads, dim, dim), np.float32), np.empty((40, heads, dim), np.float32)
    whole = StateRows(np.array([0, 40]), np.array([-1]), np.full(40, -1))
    delta_rule(backends[0], x, gates, state, whole, False, y=want)
    for backend in backends:
        for part, rows in successive_chunks((1, 16, 2, 21)):
            y = np.empty_like(want[part])
            own = DeltaRows(x.q[part], x.k[part], x.v[part])
            delta_rule(backend, own, DeltaGates(gates.decay[part], gates.beta[part]), state, rows, False, y=y)
            assert same_bits(y, want[part])


@fixtures
@given(rows=st.integers(1, 30), heads=st.integers(1, 50), seed=seeds)
def test_scan_gates_equal_oracle(backends: list[Backend], rows: int, heads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (floats(rng, rows, heads + 3) * np.float32(rng.choice([0.1, 3, 40])))[:, :heads]
    rate, bias = -np.abs(floats(rng, heads)), floats(rng, heads)
    want = oracle.ssd_gates(x, rate, bias)
    for backend in backends:
        got = ScanGates(np.empty((rows, heads), np.float32), np.empty((rows, heads), np.float32))
        ssd_gates(backend, x, rate, bias, got)
        assert same_bits(got.decay, want.decay)
        assert same_bits(got.dt, want.dt)


def test_small_steps_are_precise(backends: list[Backend]) -> None:
    """dt of models is a thousandth to a tenth. Relative to float64, also far below."""
    x = np.linspace(-20, 3, 4000, dtype=np.float32).reshape(-1, 1)
    gates, zero = ScanGates(np.empty_like(x), np.empty_like(x)), np.zeros(1, np.float32)
    for backend in backends:
        ssd_gates(backend, x, zero, zero, gates)
        want = np.logaddexp(0, x.astype(np.float64))
        assert (np.abs(gates.dt - want) <= 3e-7 * want).all()


def scan_inputs(
    rng: np.random.Generator, num_rows: int, groups: int, heads: int, state_dim: int, head_dim: int
) -> tuple[ScanRows, ScanGates]:
    """Parts of wider rows."""
    inner, lanes = heads * head_dim, groups * state_dim
    wide = floats(rng, num_rows, inner + 2 * lanes)
    b, c = (wide[:, at : at + lanes].reshape(num_rows, groups, state_dim) for at in (inner, inner + lanes))
    decay, dt = rng.random((2, num_rows, heads)).astype(np.float32)
    return ScanRows(wide[:, :inner].reshape(num_rows, heads, head_dim), b, c), ScanGates(decay, dt)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3), groups=st.integers(1, 2), repeat=st.integers(1, 3),
    state_dim=st.integers(2, 20), runs=st.integers(1, 9), seed=seeds,
)  # fmt: skip
def test_scan_equals_oracle(
    backends: list[Backend], lengths: list[int], groups: int, repeat: int, state_dim: int, runs: int, seed: int
) -> None:
    rng, heads, head_dim = np.random.default_rng(seed), groups * repeat, 16 * runs
    rows, num_slots = random_rows(rng, lengths)
    x, gates = scan_inputs(rng, len(rows.saves), groups, heads, state_dim, head_dim)
    state, skip = floats(rng, num_slots, heads, state_dim, head_dim), floats(rng, heads)
    want, want_state = oracle.ssd_scan(x, gates, skip, state, rows)
    for backend in backends:
        y, got_state = np.empty_like(want), state.copy()
        ssd_scan(backend, x, gates, skip, got_state, rows, y=y)
        assert same_bits(y, want)
        assert same_bits(got_state, want_state)


@pytest.mark.parametrize("lean", [-4.0, -6.0])
def test_the_scan_is_the_scan(backends: list[Backend], lean: float) -> None:
    """Against the textbook in float64, over a thousand tokens that fade slowly, gates included: the largest error, of
    the largest value."""
    rng, num_rows, state_dim, head_dim = np.random.default_rng(1), 1000, 128, 64
    x, gates = scan_inputs(rng, num_rows, 1, 1, state_dim, head_dim)
    raw, rate, bias = floats(rng, num_rows, 1), np.array([-0.5], np.float32), np.array([lean], np.float32)
    rows = StateRows(np.array([0, num_rows]), np.array([-1]), np.full(num_rows, -1))
    y, state, skip = np.empty_like(x.x), np.zeros((1, 1, state_dim, head_dim), np.float32), floats(rng, 1)
    ssd_gates(backends[0], raw, rate, bias, gates)
    ssd_scan(backends[0], x, gates, skip, state, rows, y=y)
    matrix, wide = np.zeros((state_dim, head_dim)), []
    for row in range(num_rows):
        own, b, c = (part[row, 0].astype(np.float64) for part in (x.x, x.b, x.c))
        dt = np.logaddexp(0, float(raw[row, 0]) + float(bias[0]))
        matrix = matrix * np.exp(float(rate[0]) * dt) + np.outer(b, dt * own)
        wide.append(c @ matrix + float(skip[0]) * own)
    want = np.array(wide)
    assert np.abs(y[:, 0] - want).max() < 2e-6 * np.abs(want).max()


def test_how_scanned_rows_are_chunked_does_not_show(backends: list[Backend]) -> None:
    """One chunk of 40 rows, or chunks that go on from each other's slots."""
    rng, heads, dim = np.random.default_rng(2), 2, 32
    x, gates = scan_inputs(rng, 40, 1, heads, dim, dim)
    state, skip, want = np.zeros((2, heads, dim, dim), np.float32), floats(rng, heads), np.empty_like(x.x)
    ssd_scan(backends[0], x, gates, skip, state, StateRows(np.array([0, 40]), np.array([-1]), np.full(40, -1)), y=want)
    for backend in backends:
        for part, rows in successive_chunks((1, 16, 2, 21)):
            y = np.empty_like(want[part])
            own = ScanRows(x.x[part], x.b[part], x.c[part])
            ssd_scan(backend, own, ScanGates(gates.decay[part], gates.dt[part]), skip, state, rows, y=y)
            assert same_bits(y, want[part])


def test_slots_that_are_not_there_are_refused(backends: list[Backend]) -> None:
    x, weights, state = np.ones((2, 8), np.float32), ConvWeights(np.ones((3, 8), np.float32)), np.zeros((2, 2, 8), "f4")
    for loads, saves in (([2], [-1, -1]), ([0], [-1, 2])):
        rows = StateRows(np.array([0, 2]), np.array(loads), np.array(saves))
        with pytest.raises(OpError, match="outside its range"):
            short_conv(backends[0], x, weights, state, rows, y=np.empty_like(x))
    rows = StateRows(np.array([0, 3]), np.array([0]), np.array([-1, -1]))
    with pytest.raises(OpError, match="does not fit"):
        short_conv(backends[0], x, weights, state, rows, y=np.empty_like(x))
