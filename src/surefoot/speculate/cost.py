"""How long a step of so many tokens takes: stairs, since kernels take rows in bands."""

from collections import deque
from itertools import chain
from statistics import median_low

from surefoot.core import BAND_ROWS

EXACT = 8  # up to here every size by itself: kernels change their ways at a few rows
NUM_KEPT = 9
FORGET_AFTER = 256  # steps; then a size counts as never seen, and is tried again
REFRESH_EVERY = 8  # steps that bring nothing new

Point = tuple[int, float]  # a size, ms


class StepCost:
    """The last few times of each size, and the rising stairs of their middles.

    Where a larger step seems to take less than a smaller one, their times are taken together: so one slow step spoils
    nothing, and one fast step promises nothing.
    """

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}  # by size: ms
        self._seen: dict[int, int] = {}  # by size: the step
        self._num_steps = 0
        self._curve: list[Point] | None = None
        self._tables: dict[tuple[int, int], list[float] | None] = {}

    def observe(self, num_tokens: int, elapsed_ms: float) -> None:
        if num_tokens < 1 or elapsed_ms <= 0:
            return
        self._num_steps += 1
        size = size_of(num_tokens)
        if self._num_steps - self._seen.get(size, 0) > FORGET_AFTER:
            self._times.pop(size, None)
        self._seen[size] = self._num_steps
        times = self._times.setdefault(size, deque(maxlen=NUM_KEPT))
        if len(times) < NUM_KEPT or self._num_steps % REFRESH_EVERY == 0:
            self._curve = None
        times.append(elapsed_ms)

    def curve(self) -> list[Point]:
        """Every size seen of late, both tokens and ms rising."""
        if self._curve is None:
            late = [size for size in sorted(self._times) if self._num_steps - self._seen[size] <= FORGET_AFTER]
            self._curve = rising({size: list(self._times[size]) for size in late})
            self._tables.clear()
        return self._curve

    def table(self, first: int, last: int) -> list[float] | None:
        """ms of steps of first, first + 1, ... last tokens; None if nothing like the first was seen.

        Twice the largest size seen is thought to take as long, or it would never be tried; beyond, time goes with size.
        """
        curve = self.curve()
        if (first, last) not in self._tables:
            self._tables[first, last] = _read(curve, first, last) if curve and 2 * curve[-1][0] >= first else None
        return self._tables[first, last]


def size_of(num_tokens: int) -> int:
    """Steps of one size are measured together, named by their largest: bands of rows, or quarters of a doubling."""
    if num_tokens <= EXACT:
        return num_tokens
    width = max(BAND_ROWS, 1 << (num_tokens - 1).bit_length() - 3)
    return -(-num_tokens // width) * width


def rising(times: dict[int, list[float]]) -> list[Point]:
    """The middle of each size's times; neighbours that fall are taken together (isotonic regression of medians)."""
    pools: list[tuple[float, list[int]]] = []
    for size, own in times.items():
        pool, ms = [size], median_low(own)
        while pools and pools[-1][0] > ms:
            pool = pools.pop()[1] + pool
            ms = median_low(list(chain.from_iterable(times[one] for one in pool)))
        pools.append((ms, pool))
    return [(size, ms) for ms, pool in pools for size in pool]


def _read(curve: list[Point], first: int, last: int) -> list[float]:
    """A size that was seen by its own time, others off the line that joins their neighbours'."""
    largest, most_ms = curve[-1]
    curve = [*curve, (2 * largest, most_ms), (8 * largest, 4 * most_ms)]
    found, place = [], 0
    for num_tokens in range(first, last + 1):
        size = size_of(num_tokens)
        while place < len(curve) - 2 and size > curve[place + 1][0]:
            place += 1
        (left, left_ms), (right, right_ms) = curve[place], curve[place + 1]
        found.append(left_ms + (right_ms - left_ms) / (right - left) * max(0, size - left))
    return found
