import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import (
    Backend,
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    RopeForm,
    RopeTable,
    YarnScaling,
    attention_factor,
    inverse_frequencies,
    rope,
    rope_table,
)
from tests.ops.comparing import same_bits
from tests.oracle import rope as oracle

fixtures = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
LLAMA3 = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)
YARN = YarnScaling(factor=4.0, original_context=32768)
FACTORS = FactorScaling(tuple(1 + i / 3 for i in range(64)), 1.2)
GPT_OSS = YarnScaling(factor=32.0, original_context=4096, truncate=False)


@fixtures
@given(rows=st.integers(0, 20), pairs=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_table_equals_oracle(backends: list[Backend], rows: int, pairs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, 10 ** rng.integers(1, 8), rows)
    inv_freq = inverse_frequencies(RopeForm(2 * pairs, theta=5e5))
    want = oracle.rope_table(positions, inv_freq, 1.2)
    for backend in backends:
        got = rope_table(backend, positions, inv_freq, 1.2)
        assert same_bits(got.cos, want[0])
        assert same_bits(got.sin, want[1])


@fixtures
@given(rows=st.integers(0, 20), pairs=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_table_with_a_factor_for_each_row_equals_oracle(
    backends: list[Backend], rows: int, pairs: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    positions, factors = rng.integers(0, 10**6, rows), rng.random(rows, np.float32) + 1
    inv_freq = inverse_frequencies(RopeForm(2 * pairs))
    want = oracle.rope_table(positions, inv_freq, 1.2, factors)
    for backend in backends:
        got = rope_table(backend, positions, inv_freq, 1.2, factors)
        assert same_bits(got.cos, want[0])
        assert same_bits(got.sin, want[1])


@fixtures
@given(
    rows=st.integers(1, 20), heads=st.integers(1, 5), pairs=st.integers(1, 70), rest=st.integers(0, 20),
    pairing=st.sampled_from(["halves", "neighbours"]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_rope_equals_oracle(
    backends: list[Backend], rows: int, heads: int, pairs: int, rest: int, pairing: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    head_dim = 2 * pairs + rest
    qkv = rng.standard_normal((rows, heads * head_dim + 7)).astype(np.float32)
    cos, sin = rng.standard_normal((2, rows, pairs)).astype(np.float32)
    want = qkv.copy()
    heads_of = lambda x: x[:, : heads * head_dim].reshape(rows, heads, head_dim)  # noqa: E731
    want[:, : heads * head_dim] = oracle.rope(heads_of(qkv), cos, sin, pairing).reshape(rows, -1)
    for backend in backends:
        got = qkv.copy()
        view = np.lib.stride_tricks.as_strided(got, (rows, heads, head_dim), (got.strides[0], 4 * head_dim, 4))
        rope(backend, view, RopeTable(cos, sin), pairing)  # type: ignore[arg-type]
        assert same_bits(got, want)


def test_rotation_keeps_lengths_and_relative_angles(backends: list[Backend]) -> None:
    """The product of a rotated query and key depends on their distance alone."""
    rng = np.random.default_rng(4)
    q, k = rng.standard_normal((2, 64)).astype(np.float32)
    inv_freq = inverse_frequencies(RopeForm(64))
    for pairing in ("halves", "neighbours"):
        products = []
        for start in (0, 17, 300):
            table = rope_table(backends[0], np.array([start, start + 5]), inv_freq)
            both = np.stack([q, k])[:, None, :].copy()
            rope(backends[0], both, table, pairing)  # type: ignore[arg-type]
            products.append(both[0, 0] @ both[1, 0])
        assert np.allclose(products, products[0], atol=1e-4)


def reference_frequencies(form: RopeForm) -> np.ndarray:
    """Frequencies by the formulas of the papers and of transformers, in float64, arranged differently from ours."""
    dim, scaling = form.dim, form.scaling
    freq = form.theta ** -(np.arange(0, dim, 2) / dim)
    match scaling:
        case LinearScaling(factor):
            return freq / factor
        case FactorScaling(factors):
            return freq / np.array(factors)
        case Llama3Scaling(factor, low, high, context):
            wavelength = 2 * np.pi / freq
            smooth = (context / wavelength - low) / (high - low)
            middle = (1 - smooth) * freq / factor + smooth * freq
            return np.where(
                wavelength > context / low, freq / factor, np.where(wavelength < context / high, freq, middle)
            )
        case YarnScaling():
            turns = np.array([scaling.beta_fast, scaling.beta_slow])
            low, high = dim * np.log(scaling.original_context / (turns * 2 * np.pi)) / (2 * math.log(form.theta))
            if scaling.truncate:
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, dim - 1)
            ramp = np.clip((np.arange(dim // 2) - low) / ((high - low) or 0.001), 0, 1)
            return freq / scaling.factor * ramp + freq * (1 - ramp)
    return freq


@pytest.mark.parametrize("scaling", [None, LinearScaling(4.0), LLAMA3, YARN, GPT_OSS, FACTORS])
@pytest.mark.parametrize(("dim", "theta"), [(64, 10000.0), (128, 500000.0), (128, 1e6), (20, 150000.0)])
def test_inverse_frequencies(dim: int, theta: float, scaling: object) -> None:
    if scaling is FACTORS:
        scaling = FactorScaling(FACTORS.factors[: dim // 2])
    form = RopeForm(dim, theta, scaling)  # type: ignore[arg-type]
    got, want = inverse_frequencies(form), reference_frequencies(form)
    assert got.dtype == np.float32
    assert got.shape == (dim // 2,)
    # Half an ulp, and a margin for float64.
    assert np.all(np.abs(got - want) <= 2.0**-24 * want * 1.0001)


def test_inverse_frequencies_by_hand() -> None:
    assert np.array_equal(inverse_frequencies(RopeForm(8)), np.array([1, 0.1, 0.01, 0.001], np.float32))
    # Wavelengths 6.3, 628 and 62,832 of a context of 1,000: kept; ramp (1.59 turns: 0.197 kept); divided by ten.
    ramp = Llama3Scaling(factor=10.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=1000)
    got = inverse_frequencies(RopeForm(6, 1e6, ramp))
    assert np.allclose(got, [1, 0.01 * (0.1972 + 0.8028 / 10), 1e-5], rtol=1e-4)


def test_attention_factor() -> None:
    assert attention_factor(RopeForm(64)) == 1.0
    assert attention_factor(RopeForm(128, scaling=FACTORS)) == 1.2
    assert attention_factor(RopeForm(64, scaling=YARN)) == pytest.approx(0.1 * math.log(4) + 1, rel=1e-15)
    assert attention_factor(RopeForm(64, scaling=YarnScaling(4.0, 4096, attention_factor=0.7))) == 0.7
    deepseek = YarnScaling(40.0, 4096, mscale=0.707, mscale_all_dim=1.0)
    want = (0.0707 * math.log(40) + 1) / (0.1 * math.log(40) + 1)
    assert attention_factor(RopeForm(64, scaling=deepseek)) == pytest.approx(want, rel=1e-12)


def test_odd_dim_is_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        RopeForm(7)
