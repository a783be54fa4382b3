import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.ops import ActivationForm, Backend, quantise
from tests.oracle import activations as oracle

forms = st.sampled_from([ActivationForm(2), ActivationForm(1, 128), ActivationForm(1, 64), ActivationForm(1, 0)])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(1, 9), cols=st.integers(1, 700), form=forms, seed=st.integers(0, 2**32 - 1))
def test_quantise_equals_oracle(backends: list[Backend], rows: int, cols: int, form: ActivationForm, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-38, 30, (rows, 1))).astype(np.float32)
    x[rng.random(rows) < 0.2] = 0
    want = oracle.quantise(x, form)
    for backend in backends:
        got = quantise(backend, x, form)
        assert np.array_equal(got.values, want.values)
        assert np.array_equal(got.scales.view(np.int32), want.scales.view(np.int32))
