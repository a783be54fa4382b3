"""Logprobs of the model's own distribution, before bias, penalties, temperature and filters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from surefoot.ops import Backend, top_logprobs
from surefoot.ops.arrays import F32


class TokenLogprobs(NamedTuple):
    """The logprob of a sampled token, and the likeliest tokens with theirs."""

    token: int  # that was sampled
    logprob: float  # in nats
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), likeliest first


class Logprobs:
    """Logprobs of some rows of logits, taken before anything changes the logits.

    A token's logprob is (x - max) - log(sum of e^(x - max)), as in docs/design/sampling.md. The likeliest token's is
    the second term alone, which is therefore known.
    """

    def __init__(self, backend: Backend, logits: F32, rows: Sequence[int], count: int) -> None:
        selected = logits if list(rows) == list(range(len(logits))) else logits[list(rows)]
        self._top = top_logprobs(backend, selected, max(count, 1))
        self._indices = {row: i for i, row in enumerate(rows)}

    def of(self, row: int, logits: F32, token: int, count: int) -> TokenLogprobs:
        """The logprobs of a token sampled from the row; `logits` is the row before any change."""
        ids, values = self._top.ids[self._indices[row]], self._top.logprobs[self._indices[row]]
        logprob = np.float32(logits[token] - logits[ids[0]]) + values[0]
        top = zip(ids[:count].tolist(), values[:count].tolist(), strict=True)
        return TokenLogprobs(token, float(logprob), tuple(top))
