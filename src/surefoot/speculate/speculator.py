"""A drafter with its depth chooser: all that the executor knows of speculation."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from surefoot.core import Request, SampleKey
from surefoot.ops import Stopped
from surefoot.speculate.controller import MAX_DEPTH, DepthChooser, DepthController
from surefoot.speculate.drafter import Drafter, DraftOffer, TargetRow

LOG = logging.getLogger(__name__)
FORCED_KIND = -1_000_000  # kind of the tokens that a grammar forces: no drafter uses it


class DraftOutcome(NamedTuple):
    """How many of a sample's drafted tokens a step accepted."""

    num_drafted: int
    num_accepted: int


class SampledTokens(NamedTuple):
    """What a step sampled for a sample."""

    tokens: Sequence[int]
    row: TargetRow | None = None  # the target's row that the last token was sampled from, if known
    forced: Callable[[], tuple[int, ...]] | None = None
    """Returns the tokens that its grammar forces next. That takes time, so it is called only if drafts may pay."""


class Speculator:
    """Drafts for the samples of a step. If the drafter fails, it is switched off; no request fails with it."""

    def __init__(
        self,
        drafter: Drafter,
        chooser: DepthChooser | None = None,
    ) -> None:
        """chooser: a DepthController by default."""
        self._drafter: Drafter | None = drafter
        self._chooser: DepthChooser = chooser or DepthController()
        self._kinds: dict[SampleKey, int] = {}  # of each sample's last draft
        self.is_paused = False  # no drafts for now, but the drafter follows the texts

    @property
    def is_enabled(self) -> bool:
        return self._drafter is not None

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        with self._disabled_on_error():
            if self._drafter is not None:
                self._drafter.start(key, request, tokens)

    def end(self, key: SampleKey) -> None:
        self._kinds.pop(key, None)
        self._chooser.forget(key)
        with self._disabled_on_error():
            if self._drafter is not None:
                self._drafter.end(key)

    def observe(self, num_tokens: int, elapsed_ms: float, outcomes: Mapping[SampleKey, DraftOutcome]) -> None:
        """Learn from a step of `num_tokens` tokens, drafts included."""
        self._chooser.observe_step(num_tokens, elapsed_ms)
        for key, (num_drafted, num_accepted) in outcomes.items():
            self._chooser.observe_verified(key, self._kinds.get(key, 0), num_drafted, num_accepted)

    def propose(
        self, sampled: Mapping[SampleKey, SampledTokens], max_depths: Mapping[SampleKey, int], num_other_tokens: int
    ) -> dict[SampleKey, tuple[int, ...]]:
        """Drafts for the next step.

        sampled: what this step sampled. max_depths: for samples that continue, the tokens that they may still generate
        after the next one. num_other_tokens: tokens that the next step is expected to have besides.
        """
        with self._disabled_on_error():
            if self._drafter is not None:
                for key, (tokens, row, _) in sampled.items():
                    self._drafter.advance(key, tokens, row)
                return self._propose(self._drafter, sampled, max_depths, len(max_depths) + num_other_tokens)
        return {}

    @contextmanager
    def _disabled_on_error(self) -> Iterator[None]:
        try:
            yield
        except Stopped:  # the pass was interrupted from outside: the next step may draft again
            return
        except Exception:
            LOG.exception("drafting failed; speculation is off from now on")
            self._drafter = None

    def _propose(
        self,
        drafter: Drafter,
        sampled: Mapping[SampleKey, SampledTokens],
        max_depths: Mapping[SampleKey, int],
        num_tokens: int,
    ) -> dict[SampleKey, tuple[int, ...]]:
        """num_tokens: of the next step without drafts."""
        keys = [key for key, max_depth in max_depths.items() if max_depth > 0]
        if self.is_paused or not keys or not self._chooser.can_pay(num_tokens):
            return {}
        offers = dict(zip(keys, drafter.offers(keys, MAX_DEPTH), strict=True))
        forced = {key: tokens for key in keys if (ask := sampled[key].forced) is not None and (tokens := ask())}
        offers |= {key: DraftOffer(len(tokens), FORCED_KIND) for key, tokens in forced.items()}
        bounded = {
            key: offer._replace(max_depth=min(offer.max_depth, max_depths[key])) for key, offer in offers.items()
        }
        depths = self._chooser.depths(bounded, num_tokens)
        drafts = {key: forced[key][:depth] for key, depth in depths.items() if key in forced}
        drafts |= self._draft(drafter, {key: depth for key, depth in depths.items() if key not in forced})
        self._kinds.update({key: offers[key].kind for key in drafts})
        return {key: tokens for key, tokens in drafts.items() if tokens}

    def _draft(self, drafter: Drafter, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        if not depths:
            return {}
        begin = time.perf_counter()
        drafts = drafter.draft(depths)
        self._chooser.observe_drafting(max(depths.values()), (time.perf_counter() - begin) * 1000)
        return drafts
