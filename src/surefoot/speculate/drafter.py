"""What every drafter is: it follows texts and guesses how they go on. A wrong guess costs time, never truth."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32


class Prospect(NamedTuple):
    """What a drafter could do for a sample, before it does it.

    most: tokens that it could draft. kind: guesses of one kind are right about equally often.
    """

    most: int
    kind: int = 0


NOTHING = Prospect(0)


class Drafter(Protocol):
    """start, then advance and (prospects, draft) in turn, then end. A sample that gives way ends, and starts anew."""

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        """A sample with all its tokens so far."""

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        """It has drawn these. state: the target's hidden row that the last was drawn from, if that is known; it stays
        until the next step."""

    def end(self, key: SampleKey) -> None: ...

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        """For each of the samples, of at most so many tokens. Quick: it is asked at every step."""

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """Guesses of at most these lengths, for samples whose prospects were just asked for."""
