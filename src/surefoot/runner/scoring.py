"""Logprobs of a prompt's own tokens, each given the tokens before it."""

from collections.abc import Sequence

from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.sampling import TokenLogprobs
from surefoot.sampling.logprobs import Logprobs


class PromptLogprobs:
    """Of every token but the first. count: alternatives to each."""

    def __init__(self, prompt: Sequence[int], count: int) -> None:
        self._prompt = prompt
        self._count = count
        self._logprobs: list[TokenLogprobs] = []

    def wanted(self, start: int, num_tokens: int) -> range:
        """Positions, of `num_tokens` from `start` on, whose logits score a prompt token that is not scored yet. A step
        that is run again scores no token twice."""
        first = max(start, len(self._logprobs))
        return range(first, max(first, min(start + num_tokens, len(self._prompt) - 1)))

    def add(self, backend: Backend, logits: F32) -> None:
        """Of the next tokens in turn."""
        rows = range(len(logits))
        logprobs = Logprobs(backend, logits, rows, self._count)
        for row in rows:
            token = self._prompt[len(self._logprobs) + 1]
            self._logprobs.append(logprobs.of(row, logits[row], token, self._count))

    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        return tuple(self._logprobs)
