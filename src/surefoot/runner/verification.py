"""Verifies a chunk's drafts against what the target draws: a token at each place, as long as all before were right.

A token is a function of seed, position and logits. So the target draws what it would draw without drafts.
"""

import time
from collections.abc import Iterator, Sequence

from surefoot.core import Chunk, SamplingParams, sample_seed
from surefoot.sampling import Draw, Drawn, Grammars, SeenTokens
from surefoot.sampling.grammar import Constraint, GrammarError
from surefoot.sampling.penalties import has_penalties


class DrawState:
    """What a sample's draws depend on besides logits: tokens seen, for penalties, and its place in its grammar."""

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
        return self.seen is None and self.constraint is None

    @property
    def is_slow(self) -> bool:
        """Whether its grammar is: no other sample waits for that."""
        return self.constraint is not None and self.constraint.is_slow

    def is_ready(self, deadline: float) -> bool:
        """Whether the next draw can be made, at the latest at that time of perf_counter. Raises GrammarError."""
        return self.constraint is None or self.constraint.wait(max(0.0, deadline - time.perf_counter()))

    def forced(self) -> tuple[int, ...]:
        """What comes next, if the grammar leaves no choice and that is known already."""
        return () if self.constraint is None else self.constraint.forced()

    def settle(self, seconds: float) -> None:
        """Give the grammar time for its work."""
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
        """They were drawn."""
        if self.seen is not None:
            for token in tokens:
                self.seen.add(token)
        if self.constraint is not None:
            self.constraint.accept(*tokens)


class Verification:
    """One chunk's draws: at its first row of logits, and at one row more for each draft that proves right.

    Draws that depend on their row alone are all made at once. If penalties or a grammar depend on the tokens before,
    draws are made one by one, on a copy of that state: if the step fails, nothing has changed.
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
        """stops: tokens that end the answer; first_end: the position from which on they may be drawn."""
        self._params, self._samples, self._stops = params, chunk.samples, stops
        self._drafts = chunk.tokens[len(chunk.tokens) - chunk.num_logits + 1 :]
        self._first_row, self._first_end = first_row, first_end
        self._first_position = chunk.start + len(chunk.tokens) - len(self._drafts)
        self._by_one = bool(self._drafts) and not state.is_empty
        self.state = state
        self._is_copy = False
        self._is_right = True  # all drafts so far
        self.failure: str | None = None
        self.drawn: list[list[Drawn]] = [[] for _ in chunk.samples]

    @property
    def is_done(self) -> bool:
        return not self._is_right or len(self.drawn[0]) > len(self._drafts)

    @property
    def last_row(self) -> int:
        """Of the logits: the one that the last token was drawn from."""
        return self._first_row + len(self.drawn[0]) - 1

    def prepare(self, deadline: float) -> bool:
        """Whether the next draws can be made. If not, no more are made: none was drawn before the first."""
        try:
            self._is_right = self.state.is_ready(deadline)
        except GrammarError as error:
            self._is_right, self.failure = False, f"{type(error).__name__}: {error}"
        if self._is_right and self._by_one and not self._is_copy:
            self.state, self._is_copy = self.state.copy(), True
        return self._is_right

    def draws(self) -> list[Draw]:
        """The next ones to make."""
        done = len(self.drawn[0])
        places = range(done, done + 1) if self._by_one else range(len(self._drafts) + 1)
        return [draw for place in places for draw in self._draws_at(place)]

    def _draws_at(self, place: int) -> Iterator[Draw]:
        seed, row, position = self._params.seed or 0, self._first_row + place, self._first_position + place
        barred = self._stops if position < self._first_end else frozenset[int]()
        for number in self._samples:
            seeded = sample_seed(seed, number)
            yield Draw(row, self._params, seeded, position, self.state.seen, self.state.constraint, barred)

    def take(self, drawn: Sequence[Drawn]) -> None:
        """What came of the draws, in their order. Without drafts there may be several samples, with drafts one."""
        if not self._drafts:
            for own, draw in zip(self.drawn, drawn, strict=True):
                own.append(draw)
            return
        for draw in drawn:
            if self.is_done:
                return
            self._is_right = draw.token in self._drafts[len(self.drawn[0]) :][:1] and draw.token not in self._stops
            self.drawn[0].append(draw)
            if self._by_one and self._is_right:
                self.state.add(draw.token)
