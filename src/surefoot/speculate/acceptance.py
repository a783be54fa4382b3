"""How often guesses are right: the rate of their kind, and how well a sample's recent acceptance predicts its next.

A text that copies goes on copying: for lookup, recent acceptance predicts much. A draft head is right about as often
anywhere: for its guesses, three wrong ones in a row predict nothing. Which of the two a kind is, is measured:

    chance = rate of the kind + trust in luck * luck of the sample

luck: how far the sample's last few guesses were above the rates of their kinds. trust: the slope of acceptance over the
luck before it (least squares); zero until there is evidence.
"""

from surefoot.core import SampleKey

KEEP_SAMPLE = 0.8  # weight of earlier drafts, when a sample's next one is verified
KEEP_KIND = 0.99
KEEP_TRUST = 0.998
FIRST = (4.0, 8.0)  # right, tried: prior of a kind
WEIGHT = 4.0  # tokens without luck: prior of a sample
FIRST_TRUST = (0.0, 2.0)  # surplus times luck, luck squared: prior of a kind
MOST = 0.99  # no guess is certain: every text ends


class Acceptance:
    """A token counts as tried if all before it were right. Surplus: right tokens beyond the rate of the kind."""

    def __init__(self) -> None:
        self._samples: dict[SampleKey, tuple[float, float]] = {}  # surplus, tried
        self._kinds: dict[int, tuple[float, float]] = {}  # right, tried
        self._trusts: dict[int, tuple[float, float]] = {}  # surplus times luck, luck squared

    def note(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None:
        num_tried = min(num_drafted, num_accepted + 1)
        surplus, luck = num_accepted - num_tried * self._share(kind), self._luck(key)
        trust = self._trusts.get(kind, FIRST_TRUST)
        self._trusts[kind] = _moved(trust, KEEP_TRUST, surplus * luck, num_tried * luck * luck)
        self._samples[key] = _moved(self._samples.get(key, (0.0, 0.0)), KEEP_SAMPLE, surplus, num_tried)
        self._kinds[kind] = _moved(self._kinds.get(kind, FIRST), KEEP_KIND, num_accepted, num_tried)

    def forget(self, key: SampleKey) -> None:
        self._samples.pop(key, None)

    def share(self, key: SampleKey, kind: int) -> float:
        """The chance that one more token is right."""
        return min(MOST, max(0.0, self._share(kind) + self._trust(kind) * self._luck(key)))

    def _share(self, kind: int) -> float:
        right, tried = self._kinds.get(kind, FIRST)
        return right / tried

    def _luck(self, key: SampleKey) -> float:
        surplus, tried = self._samples.get(key, (0.0, 0.0))
        return surplus / (tried + WEIGHT)

    def _trust(self, kind: int) -> float:
        together, alone = self._trusts.get(kind, FIRST_TRUST)
        return max(0.0, together / alone)


def _moved(sums: tuple[float, float], keep: float, *more: float) -> tuple[float, float]:
    return keep * sums[0] + more[0], keep * sums[1] + more[1]
