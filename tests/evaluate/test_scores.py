"""Scores of synthetic logits."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from surefoot.evaluate import TextError, cut_windows, evaluate
from surefoot.evaluate.scores import Tally
from surefoot.ops.arrays import F32
from surefoot.text import Tokenizer

VOCAB = 11


def tokenizer(before: tuple[int, ...] = ()) -> Tokenizer:
    """A tokenizer whose tokens are letters. before: tokens at the start of every text."""
    encode = lambda text: [*before, *(ord(letter) - ord("a") for letter in text)]  # noqa: E731
    return cast(Tokenizer, SimpleNamespace(encode=encode, ids=SimpleNamespace(before=before)))


def test_windows_are_whole() -> None:
    assert cut_windows(tokenizer(), "abcdefghij", 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert cut_windows(tokenizer(), "abcdefghij", 4, limit=7) == [[0, 1, 2, 3]]


def test_every_window_begins_with_bos() -> None:
    """BOS replaces the first token, so that the same tokens are predicted."""
    assert cut_windows(tokenizer(before=(9,)), "abcdefg", 4) == [[9, 0, 1, 2], [9, 4, 5, 6]]


def test_a_short_text_is_refused() -> None:
    with pytest.raises(TextError, match="3 tokens"):
        cut_windows(tokenizer(), "abc", 4)


@dataclass(frozen=True)
class TableEngine:
    """An engine whose logits depend on the token alone, in chunks of 3 rows."""

    name: str
    table: F32

    def logits(self, window: Sequence[int]) -> Iterator[F32]:
        for start in range(0, len(window), 3):
            yield self.table[list(window[start : start + 3])]


def table(seed: int) -> F32:
    return np.random.default_rng(seed).standard_normal((VOCAB, VOCAB)).astype(np.float32)


def softmax(logits: F32) -> F32:
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_perplexity_covers_the_second_half_of_each_window() -> None:
    windows = [[1, 2, 3, 4, 5, 6, 7, 8], [8, 3, 1, 0, 2, 2, 9, 10]]
    score = evaluate(windows, [TableEngine("a", table(1))]).scores["a"]
    probabilities = softmax(table(1))
    losses = [-math.log(probabilities[w[i], w[i + 1]]) for w in windows for i in range(4, 7)]
    assert score.num_predictions == 6
    assert score.perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-12)
    assert score.fidelity is None


def test_divergence_covers_all_positions() -> None:
    windows = [[1, 2, 3, 4, 5, 6, 7, 8]]
    progress: list[int] = []
    results = evaluate(
        windows,
        [TableEngine("a", table(1)), TableEngine("same", table(0))],
        TableEngine("reference", table(0)),
        progress.append,
    )
    p, q = softmax(table(0))[windows[0]], softmax(table(1))[windows[0]]
    kl = (p * np.log(p / q)).sum(axis=1)
    score, same = results.scores["a"].fidelity, results.scores["same"].fidelity
    assert score is not None
    assert same is not None
    assert (score.num_positions, sum(progress)) == (8, 8)
    assert score.mean_kl == pytest.approx(kl.mean(), rel=1e-9)
    assert score.max_kl == pytest.approx(kl.max(), rel=1e-9)
    assert score.flips == (p.argmax(axis=1) != q.argmax(axis=1)).mean()
    assert (same.mean_kl, same.flips) == (0, 0)
    assert results.scores["reference"].fidelity is None


def test_small_divergences_are_resolved() -> None:
    """Divergences of 1e-7 are exact, with a large vocabulary."""
    rng = np.random.default_rng(2)
    logits = 10 * rng.standard_normal((9, 50_000))
    noise = 0.0005 * rng.standard_normal(logits.shape)
    tally = Tally()
    tally.add_divergences(logits, logits + noise)
    p = softmax(logits)
    variance = (p * noise**2).sum(axis=1) - (p * noise).sum(axis=1) ** 2
    assert tally.divergences == pytest.approx(variance / 2, rel=0.01)
