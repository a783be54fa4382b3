"""Logprobs of a prompt's own tokens: what the model thought of each before it came."""

from collections.abc import Sequence

from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.sampling import TokenLogprobs
from surefoot.sampling.logprobs import Logprobs


class PromptLogprobs:
    """Of every token but the first, which nothing comes before. count: alternatives to each."""

    def __init__(self, prompt: Sequence[int], count: int) -> None:
        self._prompt = prompt
        self._count = count
        self._found: list[TokenLogprobs] = []

    def wanted(self, start: int, num_tokens: int) -> range:
        """Of the tokens from `start` on, those whose logits say something of the prompt that is not known yet: what a
        step that is run again brings once more is passed over."""
        first = max(start, len(self._found))
        return range(first, max(first, min(start + num_tokens, len(self._prompt) - 1)))

    def add(self, backend: Backend, logits: F32) -> None:
        """Of the next tokens in turn."""
        rows = range(len(logits))
        logprobs = Logprobs(backend, logits, rows, self._count)
        for row in rows:
            token = self._prompt[len(self._found) + 1]
            self._found.append(logprobs.of(row, logits[row], token, self._count))

    def found(self) -> tuple[TokenLogprobs, ...]:
        return tuple(self._found)
