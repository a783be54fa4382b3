import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import ActivationForm, Backend, GluForm, empty_activations, glu, quantise
from surefoot.ops.glu import KINDS
from tests.ops.comparing import same_bits, same_rows
from tests.oracle import glu as oracle

forms = st.builds(GluForm, st.sampled_from(KINDS), st.sampled_from([7.0, 1.5]), st.sampled_from([1.702, 1.0]))
fixtures = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fixtures
@given(
    form=forms, rows=st.integers(1, 40), cols=st.integers(1, 700), seed=st.integers(0, 2**32 - 1),
    with_up=st.booleans(), with_y=st.booleans(),
    quantised_form=st.sampled_from([ActivationForm(2), ActivationForm(1, 128)]),
)  # fmt: skip
def test_glu_equals_oracle(
    backends: list[Backend], form: GluForm, rows: int, cols: int, seed: int, with_up: bool, with_y: bool,
    quantised_form: ActivationForm,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    gate_up = (rng.standard_normal((rows, 2 * cols)) * rng.choice([0.01, 1, 5, 60], (rows, 1))).astype(np.float32)
    gate, up = gate_up[:, :cols], gate_up[:, cols:] if with_up else None
    want = oracle.glu(form, gate, up)
    for backend in backends:
        y = np.empty_like(want) if with_y else None
        quantised = empty_activations(rows, cols, quantised_form)
        glu(backend, form, gate, up, y=y, quantised=quantised)
        assert y is None or same_bits(y, want)
        assert same_rows(quantised, quantise(backend, want, quantised_form))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


TEXTBOOK = {
    "silu": lambda g, u: g * _logistic(g) * u,
    "gelu": lambda g, u: g * (1 + math.erf(g / math.sqrt(2))) / 2 * u,
    "gelu_tanh": lambda g, u: g * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) / 2 * u,
    "sigmoid": lambda g, u: _logistic(g) * u,
    "relu2": lambda g, u: max(g, 0) ** 2 * u,
    "clamped": lambda g, u: min(g, 7) * _logistic(1.702 * min(g, 7)) * (min(max(u, -7), 7) + 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_glu_is_what_it_says(backends: list[Backend], kind: str) -> None:
    """It equals the textbook formula in float64."""
    rng = np.random.default_rng(2)
    gate = np.linspace(-12, 12, 4001, dtype=np.float32)[None]
    up = (rng.standard_normal((1, 4001)) * 5).astype(np.float32)
    want = np.array([TEXTBOOK[kind](g, u) for g, u in zip(gate[0].tolist(), up[0].tolist(), strict=True)])
    y = np.empty_like(gate)
    glu(backends[0], GluForm(kind), gate, up, y=y)  # type: ignore[arg-type]
    size = np.abs(gate[0]) ** (2 if kind == "relu2" else 1)
    largest = np.maximum(size, kind == "sigmoid") * (np.abs(up[0]) + (kind == "clamped"))
    assert np.all(np.abs(y[0] - want) <= 3e-7 * largest)


def test_glu_in_place(backends: list[Backend]) -> None:
    gate, up = np.random.default_rng(3).standard_normal((2, 9, 333)).astype(np.float32)
    want = oracle.glu(GluForm(), gate, up)
    for backend in backends:
        y = gate.copy()
        glu(backend, GluForm(), y, up, y=y)
        assert same_bits(y, want)
