"""How deep to draft: for each sample, at each step, from what steps cost and how often guesses were right.

Nothing here shows in the output: any depth gives the same tokens.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from surefoot.core import SampleKey
from surefoot.speculate.acceptance import Acceptance
from surefoot.speculate.cost import StepCost
from surefoot.speculate.drafter import Prospect

MOST_DEPTH = 48
MOST_DRAFTS = 96  # of all samples in a step: each wants a row of logits
LEAST_GAIN = 1.12  # below, the noise of measuring decides
LEAST_CHANCE = 0.01
PROBE_EVERY = 32  # steps without a draft; twice as many after each that was wrong, up to
LONGEST_PAUSE = 64
PROBE_DEPTH = 1
RATE = 0.2  # how far a measurement moves the mean


class DepthChooser(Protocol):
    """Learns from what happened and says how deep to go."""

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def is_open(self, num_tokens: int) -> bool:
        """Whether any draft could be worth it in a step that has so many tokens without drafts."""

    def depths(self, prospects: Mapping[SampleKey, Prospect], num_tokens: int) -> dict[SampleKey, int]: ...


def best_depths(
    chances: Sequence[float], mosts: Sequence[int], num_tokens: int, table: Sequence[float], level_ms: float = 0.0
) -> list[int]:
    """Depths that make most of a step's time: useful tokens per millisecond.

    chances: that a sample's next guess is right. mosts: its deepest. num_tokens: of the step without drafts, all of
    them useful. table: ms of a step of num_tokens, num_tokens + 1, ... tokens. level_ms: what drafting takes for each
    token of depth, over all samples.

    Depth k of a sample adds chance^k tokens. The best of all that are left is taken one after the other; where that was
    best, it ends.
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
        self.cost = StepCost()
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
        # A guess that was right is followed by another at once; else there is time.
        self._since_draft = LONGEST_PAUSE if num_accepted else 0
        self._pause = PROBE_EVERY if num_accepted else min(2 * self._pause, LONGEST_PAUSE)

    def forget(self, key: SampleKey) -> None:
        self.acceptance.forget(key)

    def is_open(self, num_tokens: int) -> bool:
        """If not even guesses that are always right would pay, there is no use in looking for some."""
        table = self.cost.table(num_tokens, num_tokens + MOST_DRAFTS)
        if table is None:
            return False
        least = LEAST_GAIN * num_tokens / table[0]
        return any((num_tokens + more) / (ms + self._level_ms) > least for more, ms in enumerate(table[1:], 1))

    def depths(self, prospects: Mapping[SampleKey, Prospect], num_tokens: int) -> dict[SampleKey, int]:
        table = self.cost.table(num_tokens, num_tokens + MOST_DRAFTS)
        if table is None:
            return {}
        chances = [self.acceptance.share(key, one.kind) for key, one in prospects.items()]
        mosts = [one.most for one in prospects.values()]
        found = best_depths(chances, mosts, num_tokens, table, self._level_ms)
        if not any(found) and self._since_draft >= self._pause:
            found = _probe(chances, mosts)
        return {key: depth for key, depth in zip(prospects, found, strict=True) if depth}


def _probe(chances: Sequence[float], mosts: Sequence[int]) -> list[int]:
    """The likeliest guess that there is, if any."""
    likeliest = max((place for place, most in enumerate(mosts) if most), key=chances.__getitem__, default=None)
    return [min(PROBE_DEPTH, most) if place == likeliest else 0 for place, most in enumerate(mosts)]
