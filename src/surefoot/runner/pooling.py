"""A prompt's vector from its tokens' hidden states."""

from typing import Protocol

import numpy as np

from surefoot.core import Pooling, Request
from surefoot.ops.arrays import F32


class StatePool(Protocol):
    """Takes a prompt's hidden states as they are computed, in any chunks."""

    def wanted(self, start: int, count: int) -> range:
        """The positions whose states it needs, of `count` tokens from `start` on."""

    def add(self, start: int, hidden: F32) -> None:
        """The states of wanted tokens from `start` on."""

    def vector(self) -> F32:
        """The prompt's vector."""


class MeanPool:
    """The mean of hidden states, added in doubles one token after the other: how they were chunked does not show."""

    def __init__(self) -> None:
        self._sum = np.zeros(0)
        self._num_rows = 0

    def wanted(self, start: int, count: int) -> range:
        return range(start, start + count)

    def add(self, start: int, hidden: F32) -> None:
        """Those it has already, of a step that is run again, are passed over."""
        if not self._num_rows:
            self._sum = np.zeros(hidden.shape[1])
        for row in hidden[self._num_rows - start :]:
            self._sum += row
            self._num_rows += 1

    def vector(self) -> F32:
        return (self._sum / self._num_rows).astype(np.float32)


class TokenPool:
    """The hidden state of one token."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._state: F32 | None = None

    def wanted(self, start: int, count: int) -> range:
        is_inside = start <= self._position < start + count
        return range(self._position, self._position + is_inside)

    def add(self, start: int, hidden: F32) -> None:
        self._state = hidden[self._position - start].copy()

    def vector(self) -> F32:
        assert self._state is not None
        return self._state


def make_pool(request: Request) -> StatePool | None:
    """None if the request wants tokens."""
    match request.pooling:
        case Pooling.MEAN:
            return MeanPool()
        case Pooling.FIRST:
            return TokenPool(0)
        case Pooling.LAST:
            return TokenPool(len(request.prompt) - 1)
    return None
