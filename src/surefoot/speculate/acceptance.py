"""How often guesses are right: of a sample of late, and of a kind of guess."""

from surefoot.core import SampleKey

KEEP_SAMPLE = 0.8  # of what is known, when a sample's next draft was verified
KEEP_KIND = 0.98
FIRST = (1.0, 2.0)  # right, tried: what a kind begins with
WEIGHT = 4.0  # tokens that the kind's share counts for beside the sample's own
MOST = 0.99  # nothing is certain: a text ends somewhere


class Acceptance:
    """A token counts as tried if all before it were right."""

    def __init__(self) -> None:
        self._samples: dict[SampleKey, tuple[float, float]] = {}
        self._kinds: dict[int, tuple[float, float]] = {}

    def note(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None:
        num_tried = min(num_drafted, num_accepted + 1)
        self._samples[key] = _moved(self._samples.get(key, (0.0, 0.0)), KEEP_SAMPLE, num_accepted, num_tried)
        self._kinds[kind] = _moved(self._kinds.get(kind, FIRST), KEEP_KIND, num_accepted, num_tried)

    def forget(self, key: SampleKey) -> None:
        self._samples.pop(key, None)

    def share(self, key: SampleKey, kind: int) -> float:
        """The chance that one more token is right."""
        kind_right, kind_tried = self._kinds.get(kind, FIRST)
        right, tried = self._samples.get(key, (0.0, 0.0))
        return min(MOST, (right + WEIGHT * kind_right / kind_tried) / (tried + WEIGHT))


def _moved(counts: tuple[float, float], keep: float, num_right: int, num_tried: int) -> tuple[float, float]:
    right, tried = counts
    return keep * right + num_right, keep * tried + num_tried
