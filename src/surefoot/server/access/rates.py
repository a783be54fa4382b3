"""Rates per minute: of one key, and of all keys under one name each, as a fleet's gateways know them."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from surefoot.server.access.key_file import KeyEntry


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


def requests_rate(key_hash: str) -> str:
    return f"requests {key_hash}"


def tokens_rate(key_hash: str) -> str:
    return f"tokens {key_hash}"


@dataclass(frozen=True)
class RateLimits:
    """Limits per minute by the rates' names."""

    version: str  # differs whenever a limit differs
    per_minute: Mapping[str, float]
    users: Mapping[str, str]  # by the rates' names

    @classmethod
    def of(cls, entries: Iterable[KeyEntry]) -> "RateLimits":
        """Rates without a limit are left out."""
        limits, users = dict[str, float](), dict[str, str]()
        for entry in sorted(entries, key=lambda entry: entry.hash):
            for name, per_minute in (
                (requests_rate(entry.hash), entry.requests_per_minute),
                (tokens_rate(entry.hash), entry.tokens_per_minute),
            ):
                if per_minute is not None:
                    limits[name], users[name] = per_minute, entry.user
        return cls(hashlib.sha256(json.dumps(limits).encode()).hexdigest()[:16], limits, users)


NO_LIMITS = RateLimits.of(())
