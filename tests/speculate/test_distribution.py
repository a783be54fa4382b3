"""Sampled text follows the target's distribution, with drafts and without. Drafts that share the target's noise are
accepted as often as theory says."""

from collections.abc import Callable
from itertools import chain, pairwise

import mpmath
import numpy as np
import pytest

from surefoot.core import Chunk, SampleKey, SamplingParams
from surefoot.ops import Backend, SamplingRows, sample
from surefoot.runner.results import DrawState, Verification
from surefoot.sampling import Sampler, SeenTokens

VOCAB, NUM_CHAINS, LENGTH = 8, 500, 200  # 100,000 samples
PARAMS = SamplingParams(temperature=0.8, top_k=6)
MIN_P_VALUE = 1e-4


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend(threads=2)


@pytest.fixture(scope="module")
def tables() -> tuple[np.ndarray, np.ndarray]:
    """Logits of the next token by the last token, of target and drafter."""
    target = np.random.default_rng(1).standard_normal((VOCAB, VOCAB), dtype=np.float32)
    return target, target + np.random.default_rng(2).standard_normal((VOCAB, VOCAB), dtype=np.float32)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def filtered(logits: np.ndarray) -> np.ndarray:
    """Probabilities after PARAMS."""
    scaled = logits.astype(np.float64) / PARAMS.temperature
    least = np.sort(scaled, axis=-1)[:, -PARAMS.top_k][:, None]
    return softmax(np.where(scaled >= least, scaled, -np.inf))


def chains(backend: Backend, target: np.ndarray, draft: Callable[[list[int]], list[int]]) -> tuple[list, int]:
    """Texts of a Markov chain, verified as the executor does it, and the number of passes."""
    texts, num_passes, sampler = [[number % VOCAB] for number in range(NUM_CHAINS)], 0, Sampler(backend)
    params = [SamplingParams(temperature=0.8, top_k=6, seed=number) for number in range(NUM_CHAINS)]
    while left := [number for number in range(NUM_CHAINS) if len(texts[number]) <= LENGTH]:
        inputs, verifications, num_rows = list[int](), [], 0
        for number in left:
            text = texts[number]
            tokens = (text[-1], *draft(text))
            chunk = Chunk(SampleKey(f"{number}"), len(text) - 1, tokens, (), len(tokens), (0,))
            state = DrawState(params[number], text, (), None)
            verifications.append(Verification(chunk, params[number], frozenset(), num_rows, state))
            inputs += tokens
            num_rows += len(tokens)
        draws = [verification.draws() for verification in verifications]
        drawn = iter(sampler.draw(target[inputs], list(chain.from_iterable(draws))))
        for number, verification, own_draws in zip(left, verifications, draws, strict=True):
            verification.take([next(drawn) for _ in own_draws])
            texts[number] += [draw.token for draw in verification.drawn[0]]
        num_passes += len(left)
    return [text[: LENGTH + 1] for text in texts], num_passes


def p_value(texts: list[list[int]], expected: np.ndarray) -> float:
    """Of Pearson's chi-square test of the texts' transitions."""
    counts = np.zeros((VOCAB, VOCAB))
    for text in texts:
        for before, after in pairwise(text):
            counts[before, after] += 1
    expected_counts = counts.sum(axis=1, keepdims=True) * expected
    possible = expected > 0
    assert not counts[~possible].any(), "top_k leaves this token out"
    statistic = ((counts - expected_counts)[possible] ** 2 / expected_counts[possible]).sum()
    freedom = possible.sum() - VOCAB
    return float(mpmath.gammainc(freedom / 2, statistic / 2, mpmath.inf, regularized=True))


def test_samples_follow_the_target(backend: Backend, tables: tuple[np.ndarray, np.ndarray]) -> None:
    target, drafter = tables
    expected = filtered(target)
    guesses = drafter.argmax(axis=1)

    def draft(text: list[int]) -> list[int]:
        tokens = [int(guesses[text[-1]])]
        while len(tokens) < 3:
            tokens.append(int(guesses[tokens[-1]]))
        return tokens

    plain, plain_passes = chains(backend, target, lambda text: [])
    drafted, passes = chains(backend, target, draft)
    assert plain == drafted
    assert plain_passes == NUM_CHAINS * LENGTH > 1.1 * passes
    assert p_value(plain, expected) > MIN_P_VALUE
    assert p_value(drafted, expected) > MIN_P_VALUE
    # The test has the power to detect a temperature that is off by 6 %.
    assert p_value(drafted, filtered(1.06 * target)) < MIN_P_VALUE


def coupled(p: np.ndarray, q: np.ndarray) -> float:
    """The probability that the same noise picks the same token from both distributions (Gumbel-max)."""
    ratios = np.maximum(p[None, :] / p[:, None], q[None, :] / q[:, None])
    return float((1 / ratios.sum(axis=1)).sum())


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0, 2.0])
def test_acceptance_with_shared_noise_is_what_theory_says(backend: Backend, spread: float) -> None:
    """Rejection sampling accepts 1 - d, where d is the total variation distance. Shared noise accepts at least
    (1 - d) / (1 + d)."""
    rng, num_samples = np.random.default_rng(3), 20_000
    logits = 2 * rng.standard_normal((1, 64), dtype=np.float32)
    other = logits + np.float32(spread) * rng.standard_normal((1, 64), dtype=np.float32)
    p, q = softmax(logits[0]), softmax(other[0])
    distance = 0.5 * np.abs(p - q).sum()
    theory = coupled(p, q)
    assert (1 - distance) / (1 + distance) - 1e-9 <= theory <= 1 - distance + 1e-9
    rows = SamplingRows.of(num_samples, temperature=1.0, seeds=list(range(num_samples)), positions=7)
    tokens = [sample(backend, np.repeat(row, num_samples, axis=0), rows).tokens for row in (logits, other)]
    measured = float((tokens[0] == tokens[1]).mean())
    assert measured == pytest.approx(theory, abs=4 * np.sqrt(theory * (1 - theory) / num_samples) + 1e-3)


def test_a_copy_of_seen_tokens_is_independent() -> None:
    seen = SeenTokens([1, 2], [2, 5])
    copy = seen.copy()
    copy.add(9)
    copy.add(2)
    assert (seen.ids.tolist(), seen.counts.tolist()) == ([1, 2, 5], [0, 1, 1])
    assert (copy.ids.tolist(), copy.counts.tolist()) == ([1, 2, 5, 9], [0, 2, 1, 1])
