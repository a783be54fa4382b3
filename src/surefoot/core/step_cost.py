"""The cost model of a step: how long a step takes, learnt from the steps taken.

`StepCost` answers that question for the scheduler and for speculation. They ask about different sizes, so each learns
times at the resolution that it needs:

- The scheduler asks how many prompt tokens end in time, up to thousands, of which few sizes were ever seen.
  `RangeMeans` keeps the mean time of ranges that double.
- Speculation asks what a few more rows cost. Kernels take rows in bands, so time rises in stairs, which wide ranges
  would blur. `BandMedians` keeps the median time of every band.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import chain
from statistics import median_low
from typing import NamedTuple, Protocol

from surefoot.core.step import BAND_ROWS

RATE = 0.3  # how far a measurement moves the mean of its range
STEEPEST = 1.25  # a step of twice the tokens takes at most 2.5 times as long, whatever was measured once

EXACT = 8  # up to here every size is measured by itself: kernels change at a few rows
NUM_KEPT = 9  # times of one band
FORGET_AFTER = 256  # steps; then a band counts as never seen, and is tried again
REFRESH_EVERY = 8  # steps, once every band that they belong to is full


class Point(NamedTuple):
    tokens: float
    ms: float


class Curve:
    """Points that rise in tokens and ms, joined by lines. Before the first point time is constant; beyond the last it
    is proportional to size."""

    def __init__(self, points: list[Point]) -> None:
        self.largest = points[-1].tokens
        self._sizes = [tokens for tokens, _ in points]
        self._times = [ms for _, ms in points]

    def ms_at(self, size: float) -> float:
        sizes, times = self._sizes, self._times
        place = bisect_left(sizes, size)
        if place == 0:
            return times[0]
        if place == len(sizes):
            return times[-1] * size / sizes[-1]
        left, left_ms = sizes[place - 1], times[place - 1]
        return left_ms + (times[place] - left_ms) * (size - left) / (sizes[place] - left)

    def size_within(self, ms: float) -> float:
        """The largest size whose step ends in that time."""
        sizes, times = self._sizes, self._times
        place = bisect_right(times, ms)
        if place in (0, len(sizes)):
            end = min(place, len(sizes) - 1)
            return sizes[end] * ms / times[end]
        left, left_ms = sizes[place - 1], times[place - 1]
        return left + (sizes[place] - left) * (ms - left_ms) / (times[place] - left_ms)


class StepTimes(Protocol):
    """Times of past steps, at some resolution."""

    def add(self, num_tokens: int, ms: float) -> None: ...
    def size_of(self, num_tokens: int) -> int:
        """The size at which a step of that many tokens is read off the curve."""

    def curve(self) -> Curve | None:
        """The same object until it changes; None before the first step."""


class StepCost:
    """How long a step takes. times: how past steps are kept.

    row_context: context length at which attending to earlier tokens costs as much as the matrix products of the token
    itself. A token with that much context counts as two.
    """

    def __init__(self, times: StepTimes, row_context: float = math.inf) -> None:
        self._times = times
        self._row_context = row_context
        self._tables: dict[tuple[int, int], list[float] | None] = {}
        self._tabled: Curve | None = None  # the curve that the tables were read from

    def observe(self, num_tokens: int, elapsed_ms: float, num_context_tokens: int = 0) -> None:
        """num_context_tokens: that the step's tokens attend to, all together."""
        num_rows = num_tokens + round(num_context_tokens / self._row_context)
        if num_rows > 0 and elapsed_ms > 0:
            self._times.add(num_rows, elapsed_ms)

    def predict_ms(self, num_tokens: int) -> float | None:
        """None before the first step."""
        curve = self._times.curve()
        return None if curve is None else curve.ms_at(self._times.size_of(num_tokens))

    def tokens_within(self, target_ms: float) -> int | None:
        """The most tokens whose step is expected to end in time; None before the first step."""
        curve = self._times.curve()
        return None if curve is None else int(curve.size_within(target_ms))

    def table(self, first: int, last: int) -> list[float] | None:
        """ms of steps of first, first + 1, ... last tokens; None if no step was like the first."""
        curve = self._times.curve()
        if curve is not self._tabled:
            self._tables.clear()
            self._tabled = curve
        if (first, last) not in self._tables:
            self._tables[first, last] = (
                None if curve is None or first > curve.largest else self._read(curve, first, last)
            )
        return self._tables[first, last]

    def _read(self, curve: Curve, first: int, last: int) -> list[float]:
        size_of = self._times.size_of
        by_size: dict[int, float] = {}
        for size in map(size_of, range(first, last + 1)):
            if size not in by_size:
                by_size[size] = curve.ms_at(size)
        return [by_size[size_of(num_tokens)] for num_tokens in range(first, last + 1)]


class RangeMeans:
    """StepTimes: a moving mean of tokens and ms for each range of sizes; ranges double."""

    def __init__(self) -> None:
        self._means: dict[int, Point] = {}  # by the bit length of the number of tokens
        self._curve: Curve | None = None

    def add(self, num_tokens: int, ms: float) -> None:
        mean = self._means.get(num_tokens.bit_length(), Point(float(num_tokens), ms))
        moved = Point(mean.tokens + RATE * (num_tokens - mean.tokens), mean.ms + RATE * (ms - mean.ms))
        self._means[num_tokens.bit_length()] = moved
        self._curve = None

    def size_of(self, num_tokens: int) -> int:
        return num_tokens

    def curve(self) -> Curve | None:
        """Rising, and no steeper than is believable: else a size with one slow step would never be tried again."""
        if self._curve is None and self._means:
            points: list[Point] = []
            for _, (tokens, ms) in sorted(self._means.items()):
                if points:
                    before, before_ms = points[-1]
                    ms = min(max(ms, before_ms), before_ms * max(1.0, STEEPEST * tokens / before))
                points.append(Point(tokens, ms))
            self._curve = Curve(points)
        return self._curve


class BandMedians:
    """StepTimes: the last few times of each band, and rising stairs of their medians.

    Where a larger step seems to take less than a smaller one, their times are taken together. So one slow step spoils
    nothing, and one fast step promises nothing.
    """

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}  # by size: ms
        self._seen: dict[int, int] = {}  # by size: the number of the last step
        self._num_steps = 0
        self._curve: Curve | None = None

    def add(self, num_tokens: int, ms: float) -> None:
        self._num_steps += 1
        size = self.size_of(num_tokens)
        if self._num_steps - self._seen.get(size, 0) > FORGET_AFTER:
            self._times.pop(size, None)
        self._seen[size] = self._num_steps
        times = self._times.setdefault(size, deque(maxlen=NUM_KEPT))
        if len(times) < NUM_KEPT or self._num_steps % REFRESH_EVERY == 0:
            self._curve = None
        times.append(ms)

    def size_of(self, num_tokens: int) -> int:
        """The largest size of its band: a band of rows, or a quarter of a doubling."""
        if num_tokens <= EXACT:
            return num_tokens
        width = max(BAND_ROWS, 1 << (num_tokens - 1).bit_length() - 3)
        return -(-num_tokens // width) * width

    def curve(self) -> Curve | None:
        """Every size seen of late. Twice the largest is expected to take as long, or it would never be tried."""
        if self._curve is None and self._times:
            recent = [size for size in sorted(self._times) if self._num_steps - self._seen[size] <= FORGET_AFTER]
            points = rising_medians({size: list(self._times[size]) for size in recent})
            self._curve = Curve([*points, Point(2 * points[-1].tokens, points[-1].ms)])
        return self._curve


def rising_medians(times: dict[int, list[float]]) -> list[Point]:
    """The median of each size's times; neighbours that fall are taken together (isotonic regression of medians)."""
    pools: list[tuple[float, list[int]]] = []
    for size, own in times.items():
        pool, ms = [size], median_low(own)
        while pools and pools[-1][0] > ms:
            pool = pools.pop()[1] + pool
            ms = median_low(list(chain.from_iterable(times[member] for member in pool)))
        pools.append((ms, pool))
    return [Point(size, ms) for ms, pool in pools for size in pool]
