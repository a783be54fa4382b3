"""How long a step of so many tokens takes, finely enough to tell 8 rows from 9."""

from collections import deque
from statistics import median_low

EXACT = 16  # up to here every size by itself: kernels change their ways at a few rows
NUM_KEPT = 5
FORGET_AFTER = 256  # steps; then a size counts as never seen, and is tried again


class StepCost:
    """The middle one of the last few times of each size. A larger step that took less shows what a smaller one needs at
    most, so that one slow step spoils nothing for long."""

    def __init__(self) -> None:
        self._times: dict[int, deque[tuple[int, float]]] = {}  # by size: tokens, ms
        self._seen: dict[int, int] = {}  # by size: the step
        self._num_steps = 0

    def observe(self, num_tokens: int, elapsed_ms: float) -> None:
        if num_tokens < 1 or elapsed_ms <= 0:
            return
        self._num_steps += 1
        size = size_of(num_tokens)
        if self._num_steps - self._seen.get(size, 0) > FORGET_AFTER:
            self._times.pop(size, None)
        self._seen[size] = self._num_steps
        self._times.setdefault(size, deque(maxlen=NUM_KEPT)).append((num_tokens, elapsed_ms))

    def curve(self) -> list[tuple[float, float]]:
        """Tokens and ms of every size seen of late, both rising."""
        points: list[tuple[float, float]] = []
        for size in sorted(self._times, reverse=True):
            if self._num_steps - self._seen[size] > FORGET_AFTER:
                continue
            tokens = median_low([one for one, _ in self._times[size]])
            ms = median_low([one for _, one in self._times[size]])
            points.append((tokens, min(ms, points[-1][1]) if points else ms))
        return points[::-1]

    def table(self, first: int, last: int) -> list[float] | None:
        """ms of steps of first, first + 1, ... last tokens; None if nothing like the first was seen.

        Twice the largest size seen is thought to take as long, or it would never be tried; beyond, time goes with size.
        """
        curve = self.curve()
        if not curve or curve[-1][0] < first / 2:
            return None
        largest, most_ms = curve[-1]
        curve += [(2 * largest, most_ms), (8 * largest, 4 * most_ms)]
        return _read(curve, first, last)


def size_of(num_tokens: int) -> int:
    """Steps of one size are measured together: quarters of each doubling."""
    if num_tokens <= EXACT:
        return num_tokens
    shift = num_tokens.bit_length() - 3
    return num_tokens >> shift << shift


def _read(curve: list[tuple[float, float]], first: int, last: int) -> list[float]:
    """Off the line that joins the points, which goes on as it ends."""
    found, place = [], 0
    for num_tokens in range(first, last + 1):
        while place < len(curve) - 2 and num_tokens > curve[place + 1][0]:
            place += 1
        (left, left_ms), (right, right_ms) = curve[place], curve[place + 1]
        slope = (right_ms - left_ms) / (right - left)
        found.append(left_ms + slope * max(0.0, num_tokens - left))
    return found
