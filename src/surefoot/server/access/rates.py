"""Rates per minute."""

import time
from collections.abc import Callable
from typing import Protocol


class ChargedRate(Protocol):
    """A rate that requests are charged to."""

    def wait_s(self, amount: float) -> float: ...
    def take(self, amount: float) -> None: ...


class TokenBucket:
    """Holds a minute's worth, refilled evenly. It may be overdrawn, since a request's cost is known only when it
    ends."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = per_minute
        self._last = clock()

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self.per_minute, self._level + (now - self._last) * self.per_minute / 60)
        self._last = now

    def wait_s(self, amount: float) -> float:
        """Seconds until `amount` may be taken; 0 if now. An amount larger than the bucket may be taken when it is
        full."""
        self._refill()
        missing = min(amount, self.per_minute) - self._level
        return max(0.0, missing * 60 / self.per_minute)

    def take(self, amount: float) -> None:
        self._refill()
        self._level -= amount
