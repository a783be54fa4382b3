"""The sampler over the native sampler: a token depends on its request and row alone."""

import numpy as np
import pytest

from surefoot.core import SamplingParams, sample_seed
from surefoot.ops import Backend, SamplingRows, sample
from surefoot.sampling import Draw, Sampler, SeenTokens

VOCAB = 500


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend(threads=2)


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((6, VOCAB), dtype=np.float32) * 3


def draws() -> list[Draw]:
    every = [
        SamplingParams(temperature=0),
        SamplingParams(temperature=0.8, top_k=20, logprobs=3),
        SamplingParams(top_p=0.7, min_p=0.02),
        SamplingParams(repetition_penalty=1.3, frequency_penalty=0.5, logprobs=0),
        SamplingParams(logit_bias={7: 50.0}, logprobs=2),
        SamplingParams(top_p=1e-40),
    ]
    return [Draw(row, params, 100 + row, 10 * row, SeenTokens([1, 2, 3], [3])) for row, params in enumerate(every)]


def test_batching_does_not_change_tokens(backend: Backend, logits: np.ndarray) -> None:
    together = Sampler(backend).draw(logits.copy(), draws())
    for draw, expected in zip(draws(), together, strict=True):
        alone = Sampler(backend).draw(logits[draw.row : draw.row + 1].copy(), [draw._replace(row=0)])
        assert alone == [expected]
    backwards = [draw._replace(row=5 - draw.row) for draw in reversed(draws())]
    assert Sampler(backend).draw(logits[::-1].copy(), backwards) == together[::-1]


def test_sampling_without_changes_is_the_native_sampler(backend: Backend, logits: np.ndarray) -> None:
    params = SamplingParams(temperature=0.9, top_k=30, top_p=0.9, min_p=0.01, logprobs=0)
    found = Sampler(backend).draw(logits.copy(), [Draw(row, params, row, 5) for row in range(6)])
    native = sample(backend, logits, SamplingRows.of(6, 0.9, 30, 0.9, 0.01, list(range(6)), 5))
    assert [one.token for one in found] == native.tokens.tolist()
    assert [one.logprobs.logprob for one in found if one.logprobs] == native.logprobs.tolist()


def test_logprobs_are_before_bias_and_temperature(backend: Backend, logits: np.ndarray) -> None:
    """Bias chooses the token, and does not change its logprob."""
    biased = SamplingParams(temperature=0, logit_bias={7: 100.0}, logprobs=2)
    (drawn,) = Sampler(backend).draw(logits[:1].copy(), [Draw(0, biased, 0, 0)])
    (unbiased,) = Sampler(backend).draw(logits[:1].copy(), [Draw(0, SamplingParams(temperature=0, logprobs=2), 0, 0)])
    assert drawn.token == 7
    assert drawn.logprobs is not None
    assert unbiased.logprobs is not None
    assert drawn.logprobs.top == unbiased.logprobs.top
    exact = logits[0].astype(np.float64) - np.log(np.exp(logits[0].astype(np.float64)).sum())
    assert drawn.logprobs.logprob == pytest.approx(exact[7], abs=1e-5)
    assert [token for token, _ in drawn.logprobs.top] == np.argsort(-exact, kind="stable")[:2].tolist()


def test_samples_of_one_row_differ_by_their_seeds_alone(backend: Backend, logits: np.ndarray) -> None:
    params = SamplingParams(seed=9, presence_penalty=1.0, logprobs=1)
    many = [Draw(0, params, sample_seed(9, number), 4, SeenTokens([5])) for number in range(8)]
    found = Sampler(backend).draw(logits[:1].copy(), many)
    assert len({one.token for one in found}) > 1
    for draw, expected in zip(many, found, strict=True):
        assert Sampler(backend).draw(logits[:1].copy(), [draw]) == [expected]


def test_broken_logits_affect_only_their_row(backend: Backend, logits: np.ndarray) -> None:
    broken = logits.copy()
    broken[1] = np.nan
    found = Sampler(backend).draw(broken, draws())
    assert found[1].token == -1
    assert found[1].logprobs is None
    expected = Sampler(backend).draw(logits.copy(), draws())
    assert found[:1] + found[2:] == expected[:1] + expected[2:]
