"""Estimates how likely the next drafted token is to be accepted.

A text that copies goes on copying: for lookup, recent acceptance predicts future acceptance well. A draft head is right
about as often anywhere: for its drafts, three rejections in a row predict nothing. The estimator measures which of the
two holds for a kind of draft:

    p = acceptance rate of the kind + slope of the kind * recent excess of the sample

The excess is how far the sample's last few drafts were above the rates of their kinds. The slope is the least-squares
slope of acceptance over the excess before it; it is 0 until there is evidence.
"""

from typing import NamedTuple

from surefoot.core import SampleKey

SAMPLE_DECAY = 0.8  # weight of earlier drafts when a sample's next draft is verified
RATE_DECAY = 0.99
SLOPE_DECAY = 0.998
EXCESS_PRIOR_TOKENS = 4.0  # tokens without excess that shrink a sample's excess towards 0
MAX_PROBABILITY = 0.99  # no draft is certain: every text ends


class DecayedSums(NamedTuple):
    """Numerator and denominator of a running ratio. A drafted token counts as tried if all before it were accepted."""

    numerator: float
    denominator: float

    def add(self, decay: float, numerator: float, denominator: float) -> "DecayedSums":
        return DecayedSums(decay * self.numerator + numerator, decay * self.denominator + denominator)


NO_DRAFTS = DecayedSums(0.0, 0.0)
RATE_PRIOR = DecayedSums(4.0, 8.0)  # accepted and tried tokens
SLOPE_PRIOR = DecayedSums(0.0, 2.0)  # sums of surplus * excess and of excess squared


class AcceptanceEstimator:
    """Acceptance by kind of draft, corrected by each sample's recent acceptance.

    The surplus of a draft is its number of accepted tokens beyond what the rate of its kind predicts.
    """

    def __init__(self) -> None:
        self._samples: dict[SampleKey, DecayedSums] = {}  # surplus, tried
        self._rates: dict[int, DecayedSums] = {}  # by kind: accepted, tried
        self._slopes: dict[int, DecayedSums] = {}  # by kind: surplus * excess, excess squared

    def observe(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None:
        num_tried = min(num_drafted, num_accepted + 1)
        surplus, excess = num_accepted - num_tried * self._rate(kind), self._excess(key)
        slope = self._slopes.get(kind, SLOPE_PRIOR)
        self._slopes[kind] = slope.add(SLOPE_DECAY, surplus * excess, num_tried * excess * excess)
        self._samples[key] = self._samples.get(key, NO_DRAFTS).add(SAMPLE_DECAY, surplus, num_tried)
        self._rates[kind] = self._rates.get(kind, RATE_PRIOR).add(RATE_DECAY, num_accepted, num_tried)

    def forget(self, key: SampleKey) -> None:
        self._samples.pop(key, None)

    def probability(self, key: SampleKey, kind: int) -> float:
        """The probability that the sample's next drafted token of this kind is accepted."""
        return min(MAX_PROBABILITY, max(0.0, self._rate(kind) + self._slope(kind) * self._excess(key)))

    def _rate(self, kind: int) -> float:
        accepted, tried = self._rates.get(kind, RATE_PRIOR)
        return accepted / tried

    def _excess(self, key: SampleKey) -> float:
        surplus, tried = self._samples.get(key, NO_DRAFTS)
        return surplus / (tried + EXCESS_PRIOR_TOKENS)

    def _slope(self, kind: int) -> float:
        covariance, variance = self._slopes.get(kind, SLOPE_PRIOR)
        return max(0.0, covariance / variance)
