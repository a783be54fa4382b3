"""The tokens in a sample's prompt and answer, and how often the answer has each."""

from collections.abc import Iterable

import numpy as np

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
