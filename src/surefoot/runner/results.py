"""What a chunk's rows give: drawn tokens and verified drafts, a prompt's vector, and the logprobs of its tokens."""

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from surefoot.core import Chunk, Pooling, Request, SamplingParams, sample_seed
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.sampling import Draw, Drawn, Grammars, SeenTokens, TokenLogprobs
from surefoot.sampling.grammar import Constraint, GrammarError
from surefoot.sampling.sampler import Logprobs, has_penalties


class DrawState:
    """What a sample's draws depend on besides logits: the tokens seen, for penalties, and the state of its grammar."""

    def __init__(
        self, params: SamplingParams, prompt: Sequence[int], drawn: Sequence[int], grammars: Grammars | None
    ) -> None:
        self._params = params
        self.seen = SeenTokens(prompt, drawn) if has_penalties(params) else None
        self.constraint: Constraint | None = None
        if params.grammar is not None and grammars is not None:
            self.constraint = grammars.start(params.grammar, drawn)

    @property
    def is_empty(self) -> bool:
        """Whether draws depend on logits alone."""
        return self.seen is None and self.constraint is None

    @property
    def is_slow(self) -> bool:
        """Whether its grammar is slow. Other samples do not wait for a slow grammar."""
        return self.constraint is not None and self.constraint.is_slow

    def is_ready(self, deadline: float) -> bool:
        """Wait for the next mask until `deadline` (in perf_counter time), and return whether it is ready. Raises
        GrammarError."""
        return self.constraint is None or self.constraint.wait(max(0.0, deadline - time.perf_counter()))

    def forced(self) -> tuple[int, ...]:
        """The next tokens, if the grammar leaves no choice and this is known already."""
        return () if self.constraint is None else self.constraint.forced()

    def settle(self, seconds: float) -> None:
        """Wait at most `seconds` for the grammar to finish its work."""
        if self.constraint is not None:
            self.constraint.settle(seconds)

    def close(self) -> None:
        if self.constraint is not None:
            self.constraint.close()

    def copy(self) -> "DrawState":
        other = DrawState(self._params, (), (), None)
        other.seen = None if self.seen is None else self.seen.copy()
        other.constraint = None if self.constraint is None else self.constraint.copy()
        return other

    def add(self, *tokens: int) -> None:
        """Append drawn tokens."""
        if self.seen is not None:
            for token in tokens:
                self.seen.add(token)
        if self.constraint is not None:
            self.constraint.accept(*tokens)


class Verification:
    """Verifies a chunk's draft: draws a token at its first row of logits, and one more for each drafted token that is
    accepted.

    A token is a function of seed, position and logits, so the target draws the same tokens as without a draft.

    Draws that depend on their row alone are made in one batch. If penalties or a grammar depend on earlier tokens,
    draws are made one at a time, on a copy of that state: a step that fails leaves the state unchanged.
    """

    def __init__(
        self,
        chunk: Chunk,
        params: SamplingParams,
        stops: frozenset[int],
        first_row: int,
        state: DrawState,
        first_end: int = 0,
    ) -> None:
        """stops: tokens that end the answer. first_end: the first position at which they may be drawn."""
        self._params, self._samples, self._stops = params, chunk.samples, stops
        self._drafts = chunk.tokens[len(chunk.tokens) - chunk.num_logits + 1 :]
        self._first_row, self._first_end = first_row, first_end
        self._first_position = chunk.start + len(chunk.tokens) - len(self._drafts)
        self._one_at_a_time = bool(self._drafts) and not state.is_empty
        self.state = state
        self._is_copy = False
        self._continues = True  # every drafted token so far was accepted
        self.failure: str | None = None
        self.drawn: list[list[Drawn]] = [[] for _ in chunk.samples]

    @property
    def is_done(self) -> bool:
        return not self._continues or len(self.drawn[0]) > len(self._drafts)

    @property
    def last_row(self) -> int:
        """The row of logits that the last token was drawn from."""
        return self._first_row + len(self.drawn[0]) - 1

    def prepare(self, deadline: float) -> bool:
        """Whether the next mask is ready by `deadline`. If not, the verification is done."""
        try:
            self._continues = self.state.is_ready(deadline)
        except GrammarError as error:
            self._continues, self.failure = False, f"{type(error).__name__}: {error}"
        if self._continues and self._one_at_a_time and not self._is_copy:
            self.state, self._is_copy = self.state.copy(), True
        return self._continues

    def draws(self) -> list[Draw]:
        """The draws that can be made now."""
        done = len(self.drawn[0])
        offsets = range(done, done + 1) if self._one_at_a_time else range(len(self._drafts) + 1)
        return [draw for offset in offsets for draw in self._draws_at(offset)]

    def _draws_at(self, offset: int) -> Iterator[Draw]:
        seed, row, position = self._params.seed or 0, self._first_row + offset, self._first_position + offset
        barred = self._stops if position < self._first_end else frozenset[int]()
        for number in self._samples:
            seeded = sample_seed(seed, number)
            yield Draw(row, self._params, seeded, position, self.state.seen, self.state.constraint, barred)

    def take(self, drawn: Sequence[Drawn]) -> None:
        """Take the results of `draws`, in order. Only a chunk without a draft may have several samples."""
        if not self._drafts:
            for sample, draw in zip(self.drawn, drawn, strict=True):
                sample.append(draw)
            return
        for draw in drawn:
            if self.is_done:
                return
            self._continues = draw.token in self._drafts[len(self.drawn[0]) :][:1] and draw.token not in self._stops
            self.drawn[0].append(draw)
            if self._one_at_a_time and self._continues:
                self.state.add(draw.token)


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
