"""Logprobs as the model gave them: before bias, penalties, temperature and filters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from surefoot.ops import Backend, top_logprobs
from surefoot.ops.arrays import F32


class TokenLogprobs(NamedTuple):
    """A drawn token's logprob, and the most likely tokens with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Logprobs:
    """Of some rows of logits, taken before anything changes them.

    A token's is (x - max) - log(sum of e^(x - max)), as in docs/design/sampling.md; the most likely token's is the
    second term alone, so that it need not be computed again.
    """

    def __init__(self, backend: Backend, logits: F32, rows: Sequence[int], count: int) -> None:
        wanted = logits if list(rows) == list(range(len(logits))) else logits[list(rows)]
        self._top = top_logprobs(backend, wanted, max(count, 1))
        self._places = {row: place for place, row in enumerate(rows)}

    def of(self, row: int, logits: F32, token: int, count: int) -> TokenLogprobs:
        """`logits`: the row as it was."""
        ids, values = self._top.ids[self._places[row]], self._top.logprobs[self._places[row]]
        logprob = np.float32(logits[token] - logits[ids[0]]) + values[0]
        top = zip(ids[:count].tolist(), values[:count].tolist(), strict=True)
        return TokenLogprobs(token, float(logprob), tuple(top))
