"""The protocol of drafters: they follow texts and guess how they continue. A wrong guess costs time, nothing else."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32


class Prospect(NamedTuple):
    """What a drafter could draft for a sample."""

    most: int  # tokens
    kind: int = 0  # guesses of one kind are right about equally often


NOTHING = Prospect(0)


class Drafter(Protocol):
    """start, then advance and (prospects, draft) in turn, then end. A preempted sample ends, and starts again."""

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        """A sample with all its tokens so far."""

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        """It has drawn these tokens. state: the target's hidden row that the last one was drawn from, if known; it
        stays until the next step."""

    def end(self, key: SampleKey) -> None: ...

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        """For each of the samples, of at most `most` tokens. Must be quick: it is called at every step."""

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """Guesses of at most these lengths, for samples whose prospects were just asked for."""
