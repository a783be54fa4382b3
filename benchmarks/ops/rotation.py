"""Cases that go round a pool of memory, so that no part of it is in the processor's cache."""

import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil

from surefoot.bench.harness.timing import Clock, timed


class Cursor:
    """Position in a pool of memory, as a fraction of it. All cases that read the pool share it."""

    def __init__(self) -> None:
        self.at = Fraction(0)


class Rotation:
    """A case's `run` that rotates over the parts of a pool, one body per part. Each sample starts where the last sample
    of any case ended, so that the whole pool is read before any part is read again."""

    def __init__(
        self, bodies: Sequence[Callable[[], object]], cursor: Cursor | None = None, clock: Clock = time.perf_counter
    ) -> None:
        self._bodies, self._clock = bodies, clock
        self._cursor = cursor or Cursor()

    def __call__(self) -> float:
        count = len(self._bodies)
        number = ceil(self._cursor.at * count) % count
        self._cursor.at = Fraction(number + 1, count) % 1
        return timed(self._bodies[number], self._clock)()
