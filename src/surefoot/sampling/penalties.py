"""Bias, and penalties on tokens that occurred before.

    bias: x + b
    repetition, prompt and answer: x / r if x > 0, else x * r
    frequency, answer: x - f * count
    presence, answer: x - p if count > 0

in this order, each a separate operation in float32, so that the bits depend on the request alone."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from surefoot.core import SamplingParams
from surefoot.ops.arrays import F32, I64


class SeenTokens:
    """Distinct ids in order of first occurrence, each with the number of times that it was sampled."""

    def __init__(self, prompt: Iterable[int], sampled: Iterable[int] = ()) -> None:
        self._indices = {token: i for i, token in enumerate(dict.fromkeys(prompt))}
        self._ids = np.fromiter(self._indices, np.int64, len(self._indices))
        self._counts = np.zeros(len(self._indices), np.float32)
        for token in sampled:
            self.add(token)

    def add(self, token: int) -> None:
        """Counts a sampled token."""
        i = self._indices.setdefault(token, len(self._indices))
        if i == len(self._ids):
            # Spare capacity, so that a long answer is not copied at every new token.
            spare = max(64, len(self._ids))
            self._ids = np.concatenate([self._ids, np.zeros(spare, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(spare, np.float32)])
        self._ids[i] = token
        self._counts[i] += 1

    def copy(self) -> "SeenTokens":
        other = SeenTokens(())
        other._indices, other._ids, other._counts = self._indices.copy(), self._ids.copy(), self._counts.copy()
        return other

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def ids(self) -> I64:
        return self._ids[: len(self)]

    @property
    def counts(self) -> F32:
        return self._counts[: len(self)]


def apply_bias(logits: F32, bias: Mapping[int, float]) -> None:
    """Adds the bias to one row, in place. Ids beyond the vocabulary are ignored."""
    ids = np.fromiter((token for token in bias if token < len(logits)), np.int64)
    logits[ids] += np.array([bias[int(token)] for token in ids], np.float32)


def has_penalties(params: SamplingParams) -> bool:
    return (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)


def apply_penalties(
    logits: F32, rows: Sequence[int], params: Sequence[SamplingParams], seen: Sequence[SeenTokens]
) -> None:
    """Applies each request's penalties to its row, in place."""
    lengths = [len(tokens) for tokens in seen]

    def spread(values: Sequence[float]) -> F32:
        return np.repeat(np.array(values, np.float32), lengths)

    where = np.repeat(np.array(rows, np.int64), lengths), np.concatenate([tokens.ids for tokens in seen])
    counts = np.concatenate([tokens.counts for tokens in seen])
    repetition = spread([each.repetition_penalty for each in params])
    x = logits[where]
    x = np.where(x > 0, x / repetition, x * repetition)
    x -= spread([each.frequency_penalty for each in params]) * counts
    x -= spread([each.presence_penalty for each in params]) * (counts > 0)
    logits[where] = x
