"""Logprobs of a prompt's tokens, each given the tokens before it."""

from collections.abc import Sequence

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
