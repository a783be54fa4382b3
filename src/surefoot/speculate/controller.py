"""Chooses how many tokens to draft, for each sample at each step, from the cost model and the acceptance rate.

The depth of a draft is its number of tokens. It cannot change the output: any depth gives the same tokens.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from surefoot.core import BandMedians, SampleKey, StepCost, TimedStep
from surefoot.speculate.acceptance import AcceptanceEstimator
from surefoot.speculate.drafter import DraftOffer

MAX_DEPTH = 48
MAX_STEP_DRAFTS = 96  # drafted tokens of all samples in a step: each needs a row of logits
MIN_SPEEDUP = 1.12  # a smaller gain is within the noise of measuring
MIN_PROBABILITY = 0.01
PROBE_INTERVAL = 32  # steps without a draft before the first probe; doubles after each rejected probe
MAX_PROBE_INTERVAL = 64
PROBE_DEPTH = 1
SMOOTHING = 0.2  # weight of a new measurement in the moving average


class DepthChooser(Protocol):
    """Observes steps and drafts, and chooses the depth of the next drafts."""

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def can_pay(self, num_tokens: int) -> bool:
        """Whether any draft could pay in a step of `num_tokens` tokens without drafts."""

    def depths(self, offers: Mapping[SampleKey, DraftOffer], num_tokens: int) -> dict[SampleKey, int]: ...


def best_depths(
    probabilities: Sequence[float],
    max_depths: Sequence[int],
    num_tokens: int,
    step_ms: Sequence[float],
    draft_ms: float = 0.0,
) -> list[int]:
    """The depths with most useful tokens per millisecond.

    probabilities: that a sample's next drafted token is accepted. max_depths: the limit of each sample.
    num_tokens: of the step without drafts, all of them useful. step_ms: durations of steps of num_tokens,
    num_tokens + 1, ... tokens. draft_ms: drafting time per token of depth, for all samples together.

    Depth k of a sample adds p^k tokens. Drafts are added one by one, the likeliest first; the best point wins.
    """
    depths = [0] * len(probabilities)
    heap = [(-p, sample) for sample, p in enumerate(probabilities) if max_depths[sample] > 0 and p >= MIN_PROBABILITY]
    heapify(heap)
    best, best_rate = list(depths), MIN_SPEEDUP * num_tokens / step_ms[0]
    useful, deepest = float(num_tokens), 0
    for ms in step_ms[1:]:
        if not heap:
            break
        gain, sample = heappop(heap)
        useful -= gain
        depths[sample] += 1
        deepest = max(deepest, depths[sample])
        next_gain = gain * probabilities[sample]
        if depths[sample] < max_depths[sample] and -next_gain >= MIN_PROBABILITY:
            heappush(heap, (next_gain, sample))
        if (rate := useful / (ms + draft_ms * deepest)) > best_rate:
            best, best_rate = list(depths), rate
    return best


class DepthController:
    """A DepthChooser that drafts where measured step times and acceptance rates say that drafts pay.

    step_shape: predicted durations of steps, which measured ones are learnt as factors over."""

    def __init__(self, step_shape: Sequence[TimedStep] = ()) -> None:
        self.cost = StepCost(BandMedians(step_shape))
        self.acceptance = AcceptanceEstimator()
        self._draft_ms = 0.0  # per token of depth, a moving average
        self._steps_since_draft = 0
        self._probe_interval = PROBE_INTERVAL

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None:
        self.cost.observe(num_tokens, elapsed_ms)
        self._steps_since_draft += 1

    def observe_drafting(self, depth: int, elapsed_ms: float) -> None:
        self._draft_ms += SMOOTHING * (elapsed_ms / depth - self._draft_ms)

    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None:
        self.acceptance.observe(key, kind, num_drafted, num_accepted)
        # An accepted probe is followed by another at once, a rejected one after a longer pause.
        self._steps_since_draft = MAX_PROBE_INTERVAL if num_accepted else 0
        self._probe_interval = PROBE_INTERVAL if num_accepted else min(2 * self._probe_interval, MAX_PROBE_INTERVAL)

    def forget(self, key: SampleKey) -> None:
        self.acceptance.forget(key)

    def can_pay(self, num_tokens: int) -> bool:
        """False if drafts would not pay even if all were accepted."""
        step_ms = self.cost.table(num_tokens, num_tokens + MAX_STEP_DRAFTS)
        if step_ms is None:
            return False
        min_rate = MIN_SPEEDUP * num_tokens / step_ms[0]
        return any(
            (num_tokens + num_drafts) / (ms + self._draft_ms) > min_rate for num_drafts, ms in enumerate(step_ms[1:], 1)
        )

    def depths(self, offers: Mapping[SampleKey, DraftOffer], num_tokens: int) -> dict[SampleKey, int]:
        step_ms = self.cost.table(num_tokens, num_tokens + MAX_STEP_DRAFTS)
        if step_ms is None:
            return {}
        probabilities = [self.acceptance.probability(key, offer.kind) for key, offer in offers.items()]
        max_depths = [offer.max_depth for offer in offers.values()]
        depths = best_depths(probabilities, max_depths, num_tokens, step_ms, self._draft_ms)
        if not any(depths) and self._steps_since_draft >= self._probe_interval:
            depths = _probe(probabilities, max_depths)
        return {key: depth for key, depth in zip(offers, depths, strict=True) if depth}


def _probe(probabilities: Sequence[float], max_depths: Sequence[int]) -> list[int]:
    """A draft of PROBE_DEPTH for the sample whose draft is likeliest to be accepted, if any sample has a draft."""
    samples = [sample for sample, max_depth in enumerate(max_depths) if max_depth]
    likeliest = max(samples, key=probabilities.__getitem__, default=None)
    return [min(PROBE_DEPTH, limit) if sample == likeliest else 0 for sample, limit in enumerate(max_depths)]
