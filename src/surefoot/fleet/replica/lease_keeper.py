"""Keeps the rates of a fleet's clients: gateways hold leases, which are amounts taken from a key's bucket.

A bucket and all leases of it are at most a minute's worth. What was granted once is never granted again: what a gateway
no longer counts as granted to it was returned, or was in a reply that got lost, and goes back into the bucket. So the
limit holds whatever happens to messages. Only this process's monotonic clock is read.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from surefoot.fleet.leases import KeeperStatus, LeaseGrant, LeaseHolding, LeaseQuestion, LeaseReply
from surefoot.server.access.rates import RateLimits

SILENT_S = 10.0  # after which a gateway is forgotten: longer than its leases last without a word
MINUTE_S = 60.0


class LateQuestion(ValueError):
    """A newer question of the same gateway was answered already."""


class LeasedBucket:
    """One rate of one key, divided among the gateways that use it."""

    def __init__(self, per_minute: float, level: float, now: float) -> None:
        self.per_minute = per_minute
        self.level = min(per_minute, level)
        self._last = now
        self._holdings: dict[str, LeaseHolding] = {}  # by gateway, as after its last question

    @property
    def num_held(self) -> float:
        """What gateways hold together. One gateway's debt leaves another's lease as it is."""
        return sum(max(0.0, holding.held) for holding in self._holdings.values())

    def exchange(self, gateway: str, told: LeaseHolding, now: float) -> LeaseGrant:
        self._refill(now)
        known = self._holdings.pop(gateway, None)
        if known is not None:
            self.level += known.granted - told.granted
        if not told.is_wanted:
            self._spill()
            return LeaseGrant(amount=0.0, target=0.0)
        self._holdings[gateway] = told
        self._spill()
        target = self.per_minute / len(self._holdings)
        amount = max(0.0, min(target - told.held, self.level))
        self.level -= amount
        self._holdings[gateway] = LeaseHolding(granted=told.granted + amount, held=told.held + amount)
        return LeaseGrant(amount=amount, target=target)

    def forget(self, gateway: str, now: float) -> None:
        """Its lease is lost, since it may have been spent."""
        self._refill(now)
        self._holdings.pop(gateway, None)

    def change_limit(self, per_minute: float, now: float) -> None:
        self._refill(now)
        self.per_minute = per_minute

    def _refill(self, now: float) -> None:
        """Call it before holdings change: what was spent since the last exchange may have been spent just now. Until
        then there was no room for more."""
        self.level += max(0.0, now - self._last) * self.per_minute / MINUTE_S
        self._spill()
        self._last = now

    def _spill(self) -> None:
        self.level = min(self.level, max(0.0, self.per_minute - self.num_held))


@dataclass
class _Gateway:
    number: int  # of its last question
    heard: float


class LeaseKeeper:
    """All buckets. They are empty when it begins to keep rates: another server may have granted what was in them."""

    def __init__(self, limits: Callable[[], RateLimits], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._version = ""
        self._since = clock()  # when it began to keep rates
        self._buckets: dict[str, LeasedBucket] = {}
        self._gateways: dict[str, _Gateway] = {}
        self.num_exchanges = 0

    @property
    def num_gateways(self) -> int:
        """Gateways that were heard of lately."""
        self._forget_silent(self._clock())
        return len(self._gateways)

    @property
    def num_rates(self) -> int:
        """Rates of which gateways hold leases."""
        return sum(1 for _ in self._leased()) if self.num_gateways else 0

    def _leased(self) -> Iterator[str]:
        return (name for name, bucket in self._buckets.items() if bucket.num_held > 0)

    def _status(self, users: Mapping[str, str], now: float) -> KeeperStatus:
        num_users = len({users[name] for name in self._leased() if name in users})
        return KeeperStatus(seconds=now - self._since, num_users=num_users, num_gateways=len(self._gateways))

    def answer(self, question: LeaseQuestion) -> LeaseReply:
        """Raises LateQuestion."""
        now, limits = self._clock(), self._limits()
        self._forget_silent(now)
        self._hear(question, now)
        self._follow(limits, now)
        self.num_exchanges += 1
        grants = {
            name: self._bucket(name, limits.per_minute, now).exchange(question.gateway, told, now)
            for name, told in question.holdings.items()
            if name in limits.per_minute
        }
        known = question.limits == limits.version
        return LeaseReply(
            limits=limits.version,
            per_minute=None if known else dict(limits.per_minute),
            grants=grants,
            status=self._status(limits.users, now),
        )

    def _hear(self, question: LeaseQuestion, now: float) -> None:
        if not self._gateways:
            self._since = now
            self._buckets.clear()
        known = self._gateways.get(question.gateway)
        if known is not None and question.number <= known.number:
            raise LateQuestion(f"question {question.number} came after question {known.number}")
        self._gateways[question.gateway] = _Gateway(question.number, now)

    def _forget_silent(self, now: float) -> None:
        for name in [name for name, gateway in self._gateways.items() if now - gateway.heard > SILENT_S]:
            del self._gateways[name]
            for bucket in self._buckets.values():
                bucket.forget(name, now)

    def _follow(self, limits: RateLimits, now: float) -> None:
        """Take over limits that have changed."""
        if limits.version == self._version:
            return
        self._version = limits.version
        for name in [*self._buckets]:
            if name in limits.per_minute:
                self._buckets[name].change_limit(limits.per_minute[name], now)
            else:
                del self._buckets[name]

    def _bucket(self, name: str, per_minute: Mapping[str, float], now: float) -> LeasedBucket:
        """A bucket is made when it is first needed, as full as it would be."""
        if name not in self._buckets:
            rate = per_minute[name]
            self._buckets[name] = LeasedBucket(rate, (now - self._since) * rate / MINUTE_S, now)
        return self._buckets[name]
