"""Which tokens a sample has in its prompt and how often it has drawn each since."""

from collections.abc import Iterable

import numpy as np

from surefoot.ops.arrays import F32, I64


class SeenTokens:
    """Distinct ids in the order in which they came, each with the number of times that it was drawn."""

    def __init__(self, prompt: Iterable[int], drawn: Iterable[int] = ()) -> None:
        self._places = {token: place for place, token in enumerate(dict.fromkeys(prompt))}
        self._ids = np.fromiter(self._places, np.int64, len(self._places))
        self._counts = np.zeros(len(self._places), np.float32)
        for token in drawn:
            self.add(token)

    def add(self, token: int) -> None:
        """One more was drawn."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            # Zeros to spare, so that a long answer is not copied at every new token.
            spare = max(64, len(self._ids))
            self._ids = np.concatenate([self._ids, np.zeros(spare, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(spare, np.float32)])
        self._ids[place] = token
        self._counts[place] += 1

    def copy(self) -> "SeenTokens":
        other = SeenTokens(())
        other._places, other._ids, other._counts = self._places.copy(), self._ids.copy(), self._counts.copy()
        return other

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ids(self) -> I64:
        return self._ids[: len(self)]

    @property
    def counts(self) -> F32:
        return self._counts[: len(self)]
