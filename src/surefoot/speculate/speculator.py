"""A drafter with its depth chooser: all that the executor knows of speculation."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from surefoot.core import Request, SampleKey
from surefoot.ops import Stopped
from surefoot.ops.arrays import F32
from surefoot.speculate.controller import MOST_DEPTH, Controller, DepthChooser
from surefoot.speculate.drafter import Drafter, Prospect

LOG = logging.getLogger(__name__)
FORCED = -1_000_000  # the kind of what a grammar forces: no drafter's


class Verified(NamedTuple):
    """What became of a sample's drafts in a step."""

    num_drafted: int
    num_accepted: int


class Gain(NamedTuple):
    """What a sample drew in a step."""

    tokens: Sequence[int]
    state: F32 | None = None  # the target's hidden row that the last token was drawn from, if it is known
    forced: Callable[[], tuple[int, ...]] | None = None
    """Returns the tokens that its grammar forces next. That takes time, so it is called only if drafts may pay."""


class Speculator:
    """If the drafter fails, it is switched off; no request fails with it."""

    def __init__(
        self,
        drafter: Drafter,
        chooser: DepthChooser | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """chooser: a Controller by default."""
        self._drafter: Drafter | None = drafter
        self._chooser: DepthChooser = chooser or Controller()
        self._clock = clock
        self._kinds: dict[SampleKey, int] = {}  # of the drafts that were last made
        self.is_paused = False  # nothing is drafted for now, but texts are followed

    @property
    def is_on(self) -> bool:
        return self._drafter is not None

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        with self._harmless():
            if self._drafter is not None:
                self._drafter.start(key, request, tokens)

    def end(self, key: SampleKey) -> None:
        self._kinds.pop(key, None)
        self._chooser.forget(key)
        with self._harmless():
            if self._drafter is not None:
                self._drafter.end(key)

    def observe(self, num_tokens: int, elapsed_ms: float, verified: Mapping[SampleKey, Verified]) -> None:
        """A step of `num_tokens` tokens, drafts included, and what became of the drafts."""
        self._chooser.observe_step(num_tokens, elapsed_ms)
        for key, (num_drafted, num_accepted) in verified.items():
            self._chooser.observe_verified(key, self._kinds.get(key, 0), num_drafted, num_accepted)

    def propose(
        self, gains: Mapping[SampleKey, Gain], rooms: Mapping[SampleKey, int], num_others: int
    ) -> dict[SampleKey, tuple[int, ...]]:
        """Drafts for the next step.

        gains: what samples drew in this step. rooms: for samples that continue, tokens that they may still draw after
        the next one. num_others: other tokens that the next step is expected to have.
        """
        with self._harmless():
            if self._drafter is not None:
                for key, (tokens, state, _) in gains.items():
                    self._drafter.advance(key, tokens, state)
                return self._draft(self._drafter, gains, rooms, len(rooms) + num_others)
        return {}

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Stopped:  # with the pass, from outside: the next step may draft again
            return
        except Exception:
            LOG.exception("drafting failed; it is off from now on")
            self._drafter = None

    def _draft(
        self,
        drafter: Drafter,
        gains: Mapping[SampleKey, Gain],
        rooms: Mapping[SampleKey, int],
        num_tokens: int,
    ) -> dict[SampleKey, tuple[int, ...]]:
        keys = [key for key, room in rooms.items() if room > 0]
        if self.is_paused or not keys or not self._chooser.is_open(num_tokens):
            return {}
        prospects = dict(zip(keys, drafter.prospects(keys, MOST_DEPTH), strict=True))
        forced = {key: tokens for key in keys if (ask := gains[key].forced) is not None and (tokens := ask())}
        prospects |= {key: Prospect(len(tokens), FORCED) for key, tokens in forced.items()}
        fitting = {key: prospect._replace(most=min(prospect.most, rooms[key])) for key, prospect in prospects.items()}
        depths = self._chooser.depths(fitting, num_tokens)
        drafts = {key: forced[key][:depth] for key, depth in depths.items() if key in forced}
        drafts |= self._guess(drafter, {key: depth for key, depth in depths.items() if key not in forced})
        self._kinds.update({key: prospects[key].kind for key in drafts})
        return {key: tokens for key, tokens in drafts.items() if tokens}

    def _guess(self, drafter: Drafter, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        if not depths:
            return {}
        begin = self._clock()
        drafts = drafter.draft(depths)
        self._chooser.observe_drafting(max(depths.values()), (self._clock() - begin) * 1000)
        return drafts
