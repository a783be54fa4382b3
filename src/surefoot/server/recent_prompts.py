"""The last prompts of each user, to say where a new one leaves them: what follows is computed again.

A prompt that goes on where an earlier one ended leaves nothing. Prompts are kept by the namespace of their user's
cached prefixes, so nobody learns of the texts of others.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

NUM_KEPT = 8  # prompts of a user: an agent's conversation, its side requests, and those before
MOST_TOKENS = 1 << 20  # of all users, 4 MB
BEFORE, AFTER = 8, 24  # tokens that are shown of the place where two prompts part
SPAN = 32  # tokens that two prompts hardly share by chance
_FACTORS = np.uint64(0x9E3779B97F4A7C15) ** np.arange(SPAN, dtype=np.uint64)  # odd, modulo 2^64

Tokens = NDArray[np.int32]


@dataclass(frozen=True)
class Departure:
    """Where a prompt parts from the user's earlier prompt with which it has most in common."""

    common_tokens: int
    repeated_tokens: int  # of those that follow, in spans that the earlier prompt has at another place
    before: tuple[int, ...]  # tokens around that place: in the earlier prompt
    now: tuple[int, ...]


class RecentPrompts:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[Tokens]] = OrderedDict()  # by namespace; the one used last is the last
        self._num_tokens = 0

    def add(self, namespace: str, prompt: Sequence[int]) -> Departure | None:
        """Keep the prompt. Returns where it leaves the earlier ones; None if it goes on where one of them ended."""
        tokens, kept = np.array(prompt, np.int32), self._kept.setdefault(namespace, [])
        common, nearest = max(((_num_common(tokens, other), i) for i, other in enumerate(kept)), default=(0, None))
        departure = None
        if nearest is not None:
            other = kept[nearest]
            if common == len(other):
                self._num_tokens -= len(kept.pop(nearest))  # the new one holds it
            elif common < len(tokens):
                repeated = _num_repeated(tokens[common:], other)
                departure = Departure(common, repeated, _around(other, common), _around(tokens, common))
        kept.append(tokens)
        self._num_tokens += len(tokens)
        self._kept.move_to_end(namespace)
        self._drop(kept)
        return departure

    def _drop(self, kept: list[Tokens]) -> None:
        while len(kept) > NUM_KEPT:
            self._num_tokens -= len(kept.pop(0))
        while self._num_tokens > MOST_TOKENS:
            oldest = next(iter(self._kept))
            self._num_tokens -= len(self._kept[oldest].pop(0))
            if not self._kept[oldest]:
                del self._kept[oldest]


def _num_common(first: Tokens, second: Tokens) -> int:
    length = min(len(first), len(second))
    differs = first[:length] != second[:length]
    return int(differs.argmax()) if differs.any() else length


def _num_repeated(tokens: Tokens, earlier: Tokens) -> int:
    if min(len(tokens), len(earlier)) < SPAN:
        return 0
    begins = np.isin(_hashed_spans(tokens), _hashed_spans(earlier))
    return int(np.count_nonzero(np.convolve(begins, np.ones(SPAN))))


def _hashed_spans(tokens: Tokens) -> NDArray[np.uint64]:
    spans = sliding_window_view(tokens.astype(np.uint64), SPAN)
    hashed: NDArray[np.uint64] = spans @ _FACTORS
    return hashed


def _around(tokens: Tokens, at: int) -> tuple[int, ...]:
    return tuple(tokens[max(0, at - BEFORE) : at + AFTER].tolist())
