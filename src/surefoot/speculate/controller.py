"""How deep to draft, for each sample at each step: from the cost of steps and the acceptance rate.

The depth cannot change the output: any depth gives the same tokens.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from surefoot.core import BandMedians, SampleKey, StepCost
from surefoot.speculate.acceptance import Acceptance
from surefoot.speculate.drafter import Prospect

MOST_DEPTH = 48
MOST_DRAFTS = 96  # of all samples in a step: each wants a row of logits
LEAST_GAIN = 1.12  # a smaller gain is within the noise of measuring
LEAST_CHANCE = 0.01
PROBE_EVERY = 32  # steps without a draft; twice as many after each wrong probe
LONGEST_PAUSE = 64  # the most steps without a probe
PROBE_DEPTH = 1
RATE = 0.2  # how far a measurement moves the mean


class DepthChooser(Protocol):
    """Learns from what happened and says how deep to go."""

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def is_open(self, num_tokens: int) -> bool:
        """Whether any draft could pay in a step of `num_tokens` tokens without drafts."""

    def depths(self, prospects: Mapping[SampleKey, Prospect], num_tokens: int) -> dict[SampleKey, int]: ...


def best_depths(
    chances: Sequence[float], mosts: Sequence[int], num_tokens: int, table: Sequence[float], level_ms: float = 0.0
) -> list[int]:
    """The depths with most useful tokens per millisecond.

    chances: that a sample's next guess is right. mosts: its deepest. num_tokens: of the step without drafts, all of
    them useful. table: ms of a step of num_tokens, num_tokens + 1, ... tokens. level_ms: what drafting takes for each
    token of depth, over all samples.

    Depth k of a sample adds chance^k tokens. Drafts are added one by one, the likeliest first; the best point wins.
    """
    depths = [0] * len(chances)
    heap = [(-chance, place) for place, chance in enumerate(chances) if mosts[place] > 0 and chance >= LEAST_CHANCE]
    heapify(heap)
    best, best_rate = list(depths), LEAST_GAIN * num_tokens / table[0]
    useful, deepest = float(num_tokens), 0
    for ms in table[1:]:
        if not heap:
            break
        gain, place = heappop(heap)
        useful -= gain
        depths[place] += 1
        deepest = max(deepest, depths[place])
        following = gain * chances[place]
        if depths[place] < mosts[place] and -following >= LEAST_CHANCE:
            heappush(heap, (following, place))
        if (rate := useful / (ms + level_ms * deepest)) > best_rate:
            best, best_rate = list(depths), rate
    return best


class Controller:
    """A DepthChooser."""

    def __init__(self) -> None:
        self.cost = StepCost(BandMedians())
        self.acceptance = Acceptance()
        self._level_ms = 0.0
        self._since_draft = 0
        self._pause = PROBE_EVERY

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None:
        self.cost.observe(num_tokens, elapsed_ms)
        self._since_draft += 1

    def observe_drafting(self, depth: int, elapsed_ms: float) -> None:
        self._level_ms += RATE * (elapsed_ms / depth - self._level_ms)

    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None:
        self.acceptance.note(key, kind, num_drafted, num_accepted)
        # A right guess is followed by another at once; after a wrong one there is time.
        self._since_draft = LONGEST_PAUSE if num_accepted else 0
        self._pause = PROBE_EVERY if num_accepted else min(2 * self._pause, LONGEST_PAUSE)

    def forget(self, key: SampleKey) -> None:
        self.acceptance.forget(key)

    def is_open(self, num_tokens: int) -> bool:
        """False if guesses would not pay even if they were always right."""
        table = self.cost.table(num_tokens, num_tokens + MOST_DRAFTS)
        if table is None:
            return False
        least = LEAST_GAIN * num_tokens / table[0]
        return any((num_tokens + more) / (ms + self._level_ms) > least for more, ms in enumerate(table[1:], 1))

    def depths(self, prospects: Mapping[SampleKey, Prospect], num_tokens: int) -> dict[SampleKey, int]:
        table = self.cost.table(num_tokens, num_tokens + MOST_DRAFTS)
        if table is None:
            return {}
        chances = [self.acceptance.share(key, prospect.kind) for key, prospect in prospects.items()]
        mosts = [prospect.most for prospect in prospects.values()]
        depths = best_depths(chances, mosts, num_tokens, table, self._level_ms)
        if not any(depths) and self._since_draft >= self._pause:
            depths = _probe(chances, mosts)
        return {key: depth for key, depth in zip(prospects, depths, strict=True) if depth}


def _probe(chances: Sequence[float], mosts: Sequence[int]) -> list[int]:
    """The likeliest guess, if there is any."""
    likeliest = max((place for place, most in enumerate(mosts) if most), key=chances.__getitem__, default=None)
    return [min(PROBE_DEPTH, most) if place == likeliest else 0 for place, most in enumerate(mosts)]
