"""What a prompt gives besides a token: its vector, from hidden states, and its tokens' logprobs."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from surefoot.core import Pooling, Request
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.sampling import TokenLogprobs
from surefoot.sampling.sampler import Logprobs


class PromptLogprobs:
    """Logprobs of every prompt token but the first. count: alternatives to each token."""

    def __init__(self, prompt: Sequence[int], count: int) -> None:
        self._prompt = prompt
        self._count = count
        self._logprobs: list[TokenLogprobs] = []

    def wanted(self, start: int, num_tokens: int) -> range:
        """The positions among `num_tokens` from `start` on whose logits score a prompt token not yet scored. A retried
        step scores no token twice."""
        first = max(start, len(self._logprobs))
        return range(first, max(first, min(start + num_tokens, len(self._prompt) - 1)))

    def add(self, backend: Backend, logits: F32) -> None:
        """Score the next prompt tokens, one per row of logits."""
        rows = range(len(logits))
        logprobs = Logprobs(backend, logits, rows, self._count)
        for row in rows:
            token = self._prompt[len(self._logprobs) + 1]
            self._logprobs.append(logprobs.of(row, logits[row], token, self._count))

    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        return tuple(self._logprobs)


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
