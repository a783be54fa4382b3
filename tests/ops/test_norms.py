import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import (
    ActivationForm,
    Backend,
    NormForm,
    OpError,
    empty_activations,
    gated_norm,
    match_rms,
    norm,
    norm_heads,
    quantise,
    sparsify,
)
from surefoot.ops.arrays import F32
from tests.ops.comparing import same_bits, same_rows
from tests.oracle import norms as oracle

forms = st.builds(
    NormForm, st.sampled_from(["rms", "layer"]), st.sampled_from([1e-5, 1e-6, 1e-12]), st.sampled_from([0.0, 1.0])
)
quantised_forms = st.sampled_from([ActivationForm(2), ActivationForm(1, 128), ActivationForm(1, 0)])
fixtures = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows_of(rng: np.random.Generator, rows: int, cols: int, gap: int = 0) -> F32:
    """Rows of very different size, `gap` elements apart."""
    wide = rng.standard_normal((rows, cols + gap)) * 10.0 ** rng.integers(-6, 7, (rows, 1)) + rng.standard_normal()
    return wide.astype(np.float32)[:, :cols]


@fixtures
@given(
    form=forms, rows=st.integers(1, 40), cols=st.integers(1, 700), seed=st.integers(0, 2**32 - 1),
    given_parts=st.tuples(*[st.booleans()] * 5), quantised_form=quantised_forms,
)  # fmt: skip
def test_norm_equals_oracle(
    backends: list[Backend], form: NormForm, rows: int, cols: int, seed: int, given_parts: tuple[bool, ...],
    quantised_form: ActivationForm,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    with_weight, with_bias, with_residual, with_h, with_y = given_parts
    x, vectors = rows_of(rng, rows, cols, 5), rng.standard_normal((2, cols)).astype(np.float32)
    weight, bias = vectors[0] if with_weight else None, vectors[1] if with_bias else None
    residual = rows_of(rng, rows, cols, 3) if with_residual else None
    want_h, want_y = oracle.norm(form, x, weight, bias, residual)
    for backend in backends:
        h, y = (np.empty_like(want_y) if wanted else None for wanted in (with_h, with_y))
        quantised = empty_activations(rows, cols, quantised_form)
        norm(backend, form, x, weight, bias, residual, h=h, y=y, quantised=quantised)
        assert h is None or same_bits(h, want_h)
        assert y is None or same_bits(y, want_y)
        assert same_rows(quantised, quantise(backend, want_y, quantised_form))


def test_norm_in_place(backends: list[Backend]) -> None:
    """The residual stream may be updated where it lies."""
    rng = np.random.default_rng(0)
    x, stream = rows_of(rng, 30, 576), rows_of(rng, 30, 576)
    want_h, want_y = oracle.norm(NormForm(), x, residual=stream)
    for backend in backends:
        h, y = stream.copy(), x.copy()
        norm(backend, NormForm(), y, residual=h, h=h, y=y)
        assert same_bits(h, want_h)
        assert same_bits(y, want_y)


@pytest.mark.parametrize(("rows", "kind"), [(1, "rms"), (33, "rms"), (5, "layer")])
def test_heads_are_normed_one_by_one(backends: list[Backend], rows: int, kind: str) -> None:
    """Some of the heads of a wider array; the others stay as they are."""
    wide = rows_of(np.random.default_rng(2), rows * 9, 80).reshape(rows, 9, 80)
    weight = np.random.default_rng(3).standard_normal(80).astype(np.float32)
    bias = np.random.default_rng(4).standard_normal(80).astype(np.float32) if kind == "layer" else None
    form, heads = NormForm(kind), np.ascontiguousarray(wide[:, 2:7]).reshape(-1, 80)  # type: ignore[arg-type]
    want = wide.copy()
    want[:, 2:7] = oracle.norm(form, heads, weight, bias)[1].reshape(rows, 5, 80)
    for backend in backends:
        got = wide.copy()
        norm_heads(backend, form, got[:, 2:7], weight, bias)
        assert same_bits(got, want)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm_is_a_norm(backends: list[Backend], kind: str) -> None:
    """Against the textbook in float64."""
    x = np.random.default_rng(1).standard_normal((3, 1536)).astype(np.float32) + np.float32(0.5)
    wide = x.astype(np.float64)
    centred = wide if kind == "rms" else wide - wide.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6)
    y = np.empty_like(x)
    norm(backends[0], NormForm(kind), x, y=y)  # type: ignore[arg-type]
    assert np.abs(y - want).max() < 2e-6


def test_norm_needs_an_output(backends: list[Backend]) -> None:
    with pytest.raises(OpError, match="missing"):
        norm(backends[0], NormForm(), np.ones((2, 8), np.float32))


@fixtures
@given(
    rows=st.integers(1, 40), group_cols=st.integers(1, 300), groups=st.integers(1, 4), with_y=st.booleans(),
    quantised_form=quantised_forms, seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_gated_norm_equals_oracle(
    backends: list[Backend], rows: int, group_cols: int, groups: int, with_y: bool, quantised_form: ActivationForm,
    seed: int,
) -> None:  # fmt: skip
    rng, cols = np.random.default_rng(seed), groups * group_cols
    x, gate = rows_of(rng, rows, cols, 5), rng.standard_normal((rows, cols + 3)).astype(np.float32)[:, :cols] * 4
    weight = rng.standard_normal(cols).astype(np.float32)
    want = oracle.gated_norm(1e-5, groups, x, gate, weight)
    for backend in backends:
        y, quantised = np.empty_like(want) if with_y else None, empty_activations(rows, cols, quantised_form)
        gated_norm(backend, 1e-5, groups, x, gate, weight, y=y, quantised=quantised)
        assert y is None or same_bits(y, want)
        assert same_rows(quantised, quantise(backend, want, quantised_form))


def test_gated_norm_is_what_it_says(backends: list[Backend]) -> None:
    """Against the textbook in float64, two groups of 32 columns."""
    rng = np.random.default_rng(3)
    x, gate, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 64), (5, 64), (64,)))
    wide = (x * gate / (1 + np.exp(-gate.astype(np.float64)))).reshape(5, 2, 32)
    want = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).reshape(5, 64) * weight
    y = np.empty_like(x)
    gated_norm(backends[0], 1e-5, 2, x, gate, weight, y=y)
    assert np.abs(y - want).max() < 1e-6 * np.abs(want).max()


@fixtures
@given(
    rows=st.integers(1, 40), cols=st.integers(1, 700), gap=st.integers(0, 20), seed=st.integers(0, 2**32 - 1),
    spreads=st.sampled_from([-1.0, 0.0, 1.6448536]),
)  # fmt: skip
def test_sparsify_equals_oracle(
    backends: list[Backend], rows: int, cols: int, gap: int, seed: int, spreads: float
) -> None:
    x = rows_of(np.random.default_rng(seed), rows, cols, gap)
    want = oracle.sparsify(x, spreads)
    for backend in backends:
        got = rows_of(np.random.default_rng(seed), rows, cols, gap)
        sparsify(backend, got, spreads)
        assert same_bits(got, want)


@fixtures
@given(
    rows=st.integers(1, 40), cols=st.integers(1, 700), gaps=st.tuples(*[st.integers(0, 20)] * 2),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_match_rms_equals_oracle(
    backends: list[Backend], rows: int, cols: int, gaps: tuple[int, int], seed: int
) -> None:
    x = rows_of(np.random.default_rng(seed), rows, cols, gaps[0])
    want = oracle.match_rms(x, rows_of(np.random.default_rng(seed + 1), rows, cols, gaps[1]), 1e-5)
    for backend in backends:
        got = rows_of(np.random.default_rng(seed + 1), rows, cols, gaps[1])
        match_rms(backend, x, got, 1e-5)
        assert same_bits(got, want)


def test_what_stands_out_of_a_row_is_a_share_of_normal_values(backends: list[Backend]) -> None:
    x = np.random.default_rng(0).standard_normal((4, 10_000)).astype(np.float32) * 3 + 1
    sparsify(backends[0], x, 1.6448536)
    assert np.allclose((x > 0).mean(axis=1), 0.05, atol=0.01)
