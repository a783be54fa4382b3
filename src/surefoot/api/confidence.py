"""How sure a model is of its answers, by the logprobs of their first tokens."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.api.answers import Logprob

MOST_TOKENS = 256  # of an answer that are looked at


@dataclass(frozen=True)
class Confidence:
    """Logprobs of the tokens that were looked at. The same bits in whatever order the tokens came."""

    tokens: int
    mean_logprob: float
    least_logprob: float

    @classmethod
    def of(cls, logprobs: Sequence[float]) -> "Confidence":
        """An answer without tokens is sure: there is nothing to doubt."""
        count = len(logprobs)
        return cls(count, math.fsum(logprobs) / max(count, 1), min(logprobs, default=0.0))


def sampled_logprobs(tokens: Sequence[Mapping[int, Logprob]]) -> Iterator[float]:
    """Of each token the logprob, which comes before those of the likeliest tokens."""
    return (next(iter(logprobs.values())).logprob for logprobs in tokens)
