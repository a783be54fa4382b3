"""The cost model: predicts how long a step takes, from the durations of past steps.

`StepCost` serves the scheduler and speculation. They ask about different step sizes, so each keeps times at the
resolution that it needs:

- The scheduler asks how many prompt tokens fit into a target time, up to thousands, of which few sizes were ever seen.
  `RangeMeans` keeps the mean time of ranges that double.
- Speculation asks what a few more rows cost. Kernels process rows in bands, so time rises in steps, which wide ranges
  would blur. `BandMedians` keeps the median time of every band.

Both may be given the shape of step times that `models.step_time` predicts. What is learnt is then a factor over it:
between the sizes that were seen, and beyond them, time follows the shape.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from statistics import median_low
from typing import NamedTuple, Protocol

from surefoot.core.step import BAND_ROWS

SMOOTHING = 0.3  # weight of a new measurement in the mean of its range
MAX_SLOPE = 1.25  # a step of twice the tokens counts as at most 2.5 times as long, whatever an outlier says

EXACT_TOKENS = 8  # up to here every size is its own band: kernels differ at a few rows
NUM_KEPT = 9  # times kept for each band
FORGET_AFTER = 256  # steps after which a band counts as never seen, and is tried again
REFRESH_EVERY = 8  # steps between updates of the curve, once a band has all its times


class TimedStep(NamedTuple):
    """A step size and its duration."""

    tokens: float
    ms: float


class Curve:
    """Linear interpolation between points that rise in tokens and ms. Before the first point time is constant; beyond
    the last it is proportional to size."""

    def __init__(self, points: list[TimedStep]) -> None:
        self.max_tokens = points[-1].tokens
        self._sizes = [tokens for tokens, _ in points]
        self._times = [ms for _, ms in points]

    def ms_at(self, size: float) -> float:
        sizes, times = self._sizes, self._times
        index = bisect_left(sizes, size)
        if index == 0:
            return times[0]
        if index == len(sizes):
            return times[-1] * size / sizes[-1]
        left, left_ms = sizes[index - 1], times[index - 1]
        return left_ms + (times[index] - left_ms) * (size - left) / (sizes[index] - left)

    def between(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        """Its points of sizes between two sizes."""
        start, end = bisect_right(self._sizes, low), bisect_left(self._sizes, high)
        return zip(self._sizes[start:end], self._times[start:end], strict=True)

    def size_within(self, ms: float) -> float:
        """The largest size whose step takes at most `ms`."""
        sizes, times = self._sizes, self._times
        index = bisect_right(times, ms)
        if index in (0, len(sizes)):
            end = min(index, len(sizes) - 1)
            return sizes[end] * ms / times[end]
        left, left_ms = sizes[index - 1], times[index - 1]
        return left + (sizes[index] - left) * (ms - left_ms) / (times[index] - left_ms)


def follow_shape(points: list[TimedStep], shape: Curve, beyond: bool) -> list[TimedStep]:
    """The points, and between them points of the shape, times the factor of measured over predicted time there; still
    rising. beyond: after the last point too."""
    factors = [ms / shape.ms_at(tokens) for tokens, ms in points]
    first, last = points[0], points[-1]
    path = [TimedStep(size, min(ms * factors[0], first.ms)) for size, ms in shape.between(0, first.tokens)]
    for (left, right), (factor, next_factor) in zip(pairwise(points), pairwise(factors), strict=True):
        path.append(left)
        slope = (next_factor - factor) / (right.tokens - left.tokens)
        for size, ms in shape.between(left.tokens, right.tokens):
            scaled = ms * (factor + slope * (size - left.tokens))
            path.append(TimedStep(size, min(max(scaled, path[-1].ms), right.ms)))
    path.append(last)
    if beyond:
        path += [TimedStep(size, max(ms * factors[-1], last.ms)) for size, ms in shape.between(last.tokens, math.inf)]
    return path


class StepTimes(Protocol):
    """Times of past steps, at some resolution."""

    def add(self, num_tokens: int, ms: float) -> None: ...
    def size_of(self, num_tokens: int) -> int:
        """The size at which the curve is read for a step of `num_tokens` tokens."""

    def curve(self) -> Curve | None:
        """The same object until the curve changes; None before the first step."""


class StepCost:
    """Predicts how long a step takes. times: the durations of past steps.

    row_context: context length at which attending to earlier tokens costs as much as the matrix products of the token
    itself. A token with that much context counts as two.
    """

    def __init__(self, times: StepTimes, row_context: float = math.inf) -> None:
        self._times = times
        self._row_context = row_context
        self._tables: dict[tuple[int, int], list[float] | None] = {}
        self._tables_curve: Curve | None = None  # the curve that the tables were computed from

    def observe(self, num_tokens: int, elapsed_ms: float, num_context_tokens: int = 0) -> None:
        """num_context_tokens: sum over the step's tokens of the earlier tokens that each attends to."""
        num_rows = num_tokens + round(num_context_tokens / self._row_context)
        if num_rows > 0 and elapsed_ms > 0:
            self._times.add(num_rows, elapsed_ms)

    def predict_ms(self, num_tokens: int) -> float | None:
        """None before the first step."""
        curve = self._times.curve()
        return None if curve is None else curve.ms_at(self._times.size_of(num_tokens))

    def tokens_within(self, target_ms: float) -> int | None:
        """The largest number of tokens whose step is predicted to take at most `target_ms`; None before the first
        step."""
        curve = self._times.curve()
        return None if curve is None else int(curve.size_within(target_ms))

    def table(self, first: int, last: int) -> list[float] | None:
        """Predicted ms of steps of first, first + 1, ... last tokens; None if `first` is beyond all measured sizes."""
        curve = self._times.curve()
        if curve is not self._tables_curve:
            self._tables.clear()
            self._tables_curve = curve
        if (first, last) not in self._tables:
            self._tables[first, last] = (
                None if curve is None or first > curve.max_tokens else self._read(curve, first, last)
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
    """StepTimes as moving averages of tokens and ms, one for each range of sizes; ranges double.

    shape: predicted times, which other sizes follow."""

    def __init__(self, shape: Sequence[TimedStep] = ()) -> None:
        self._shape = Curve(list(shape)) if shape else None
        self._means: dict[int, TimedStep] = {}  # by the bit length of the number of tokens
        self._curve: Curve | None = None

    def add(self, num_tokens: int, ms: float) -> None:
        mean = self._means.get(num_tokens.bit_length(), TimedStep(float(num_tokens), ms))
        moved = TimedStep(mean.tokens + SMOOTHING * (num_tokens - mean.tokens), mean.ms + SMOOTHING * (ms - mean.ms))
        self._means[num_tokens.bit_length()] = moved
        self._curve = None

    def size_of(self, num_tokens: int) -> int:
        return num_tokens

    def curve(self) -> Curve | None:
        """Rising, with a bounded slope: without the bound, a size with one slow step would never be tried again."""
        if self._curve is None and self._means:
            points: list[TimedStep] = []
            for _, (tokens, ms) in sorted(self._means.items()):
                if points:
                    before, before_ms = points[-1]
                    ms = min(max(ms, before_ms), before_ms * max(1.0, MAX_SLOPE * tokens / before))
                points.append(TimedStep(tokens, ms))
            self._curve = Curve(points if self._shape is None else follow_shape(points, self._shape, beyond=True))
        return self._curve


class BandMedians:
    """StepTimes as the last few times of each band, and an isotonic regression of their medians.

    Where a larger step seems to take less than a smaller one, their times are pooled. So outliers have no effect.
    shape: predicted times, which sizes between those that were seen follow.
    """

    def __init__(self, shape: Sequence[TimedStep] = ()) -> None:
        self._shape = Curve(list(shape)) if shape else None
        self._times: dict[int, deque[float]] = {}  # by size: ms
        self._last_seen: dict[int, int] = {}  # by size: the number of the last step
        self._num_steps = 0
        self._curve: Curve | None = None

    def add(self, num_tokens: int, ms: float) -> None:
        self._num_steps += 1
        size = self.size_of(num_tokens)
        if self._num_steps - self._last_seen.get(size, 0) > FORGET_AFTER:
            self._times.pop(size, None)
        self._last_seen[size] = self._num_steps
        times = self._times.setdefault(size, deque(maxlen=NUM_KEPT))
        if len(times) < NUM_KEPT or self._num_steps % REFRESH_EVERY == 0:
            self._curve = None
        times.append(ms)

    def size_of(self, num_tokens: int) -> int:
        """The largest size of the band: BAND_ROWS wide, or a quarter of the range between two powers of two."""
        if num_tokens <= EXACT_TOKENS:
            return num_tokens
        width = max(BAND_ROWS, 1 << (num_tokens - 1).bit_length() - 3)
        return -(-num_tokens // width) * width

    def curve(self) -> Curve | None:
        """Every size seen recently. Twice the largest counts as equally fast, so that it is tried at all."""
        if self._curve is None and self._times:
            recent = [size for size in sorted(self._times) if self._num_steps - self._last_seen[size] <= FORGET_AFTER]
            points = rising_medians({size: list(self._times[size]) for size in recent})
            points = points if self._shape is None else follow_shape(points, self._shape, beyond=False)
            self._curve = Curve([*points, TimedStep(2 * points[-1].tokens, points[-1].ms)])
        return self._curve


def rising_medians(times: dict[int, list[float]]) -> list[TimedStep]:
    """The median of each size's times; neighbours whose medians fall are pooled (isotonic regression of medians)."""
    pools: list[tuple[float, list[int]]] = []
    for size, size_times in times.items():
        pool, ms = [size], median_low(size_times)
        while pools and pools[-1][0] > ms:
            pool = pools.pop()[1] + pool
            ms = median_low(list(chain.from_iterable(times[member] for member in pool)))
        pools.append((ms, pool))
    return [TimedStep(size, ms) for ms, pool in pools for size in pool]
