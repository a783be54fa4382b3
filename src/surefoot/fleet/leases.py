"""A gateway's leases of its clients' rates. A request is charged to a lease, so that none waits for a remote call.

A gateway tells the keeper (`replica/lease_keeper.py`) what it holds, and gets more. It returns what it does not use.
A gateway whose lease is used up may run ahead of the keeper by a quarter of a minute's worth, as a debt.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from surefoot.server.access.key_file import hash_of
from surefoot.server.access.rates import requests_rate, tokens_rate
from surefoot.server.errors import too_many

LEASES_PATH = "/fleet/leases"
MOST_RATES = 20_000  # in one question
MOST_LEASE_BYTES = MOST_RATES * 200
MOST_REPLY_BYTES = 16 << 20  # it has the limits of all keys

Amount = Annotated[float, Field(allow_inf_nan=False)]
Granted = Annotated[float, Field(ge=0, le=1e12)]
RateName = Annotated[str, Field(max_length=256)]
LEASE_S = 5.0  # for which leases last without an exchange: less than the keeper's patience
IDLE_S = 10.0  # without use, after which a lease is returned
AHEAD = 0.25  # part of a minute's worth by which a gateway may be ahead of the keeper
MINUTE_S = 60.0


class LeaseHolding(BaseModel):
    """A gateway's account of one rate. Spending lowers what it holds; returning lowers both."""

    model_config = ConfigDict(frozen=True)

    granted: Amount  # in all, less what was returned
    held: Amount  # of that, not spent; below 0: a debt
    is_wanted: bool = True  # False: the gateway has not used the rate lately


class LeaseQuestion(BaseModel):
    """A gateway tells all rates that it uses, and asks for more of them."""

    gateway: Annotated[str, Field(max_length=64)]  # differs after a restart
    number: int  # higher in each question
    limits: Annotated[str, Field(max_length=64)] = ""  # version that it knows
    holdings: Annotated[dict[str, LeaseHolding], Field(max_length=MOST_RATES)] = {}


class LeaseGrant(BaseModel):
    """The answer for one rate."""

    model_config = ConfigDict(frozen=True)

    amount: Granted  # more to hold
    target: Granted  # what lies above it should be returned


class KeeperStatus(BaseModel):
    """What the keeper tells of itself, for people to read."""

    model_config = ConfigDict(frozen=True)

    seconds: Granted  # for which it has kept rates
    num_users: Annotated[int, Field(ge=0)]  # of whose rates gateways hold a part
    num_gateways: Annotated[int, Field(ge=0)]


class LeaseReply(BaseModel):
    limits: Annotated[str, Field(max_length=64)]  # version
    per_minute: dict[RateName, Annotated[float, Field(gt=0, le=1e12)]] | None = None  # by rate; None: it knows them
    grants: Annotated[dict[RateName, LeaseGrant], Field(max_length=MOST_RATES)] = {}
    status: KeeperStatus | None = None  # None: the server's version does not tell


class LeasedRate:
    """What the gateway holds of one rate."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self.granted = self.held = 0.0  # as in `LeaseHolding`
        self.target = 0.0  # that the keeper wants it to hold at most
        self.used = now

    @property
    def ahead(self) -> float:
        """At least one request, so that any request can pass once there is no debt."""
        return max(1.0, AHEAD * self.per_minute)

    @property
    def is_low(self) -> bool:
        return self.held < max(1.0, self.target / 2)

    def wait_s(self) -> float:
        """Seconds until one more may be taken, if nobody else takes it; 0 if now."""
        return max(0.0, (1.0 - self.held - self.ahead) * MINUTE_S / self.per_minute)

    def take(self, amount: float, now: float) -> None:
        """An amount below 0 was taken for nothing."""
        self.held -= amount
        self.used = now

    def return_above(self, most: float) -> None:
        excess = max(0.0, self.held - most)
        self.held -= excess
        self.granted -= excess

    def is_wanted(self, now: float) -> bool:
        return now - self.used < IDLE_S or self.held < 0

    def tell(self, now: float) -> LeaseHolding:
        """What lies above the target is returned before it is told, so that it cannot be spent meanwhile."""
        is_wanted = self.is_wanted(now)
        self.return_above(self.target if is_wanted else 0.0)
        return LeaseHolding(granted=self.granted, held=self.held, is_wanted=is_wanted)


class Leases:
    """All rates of the gateway's clients. Limits are the keeper's: before the first exchange none is known, and servers
    charge requests themselves."""

    def __init__(self, on_low: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """on_low: an exchange is due."""
        self.gateway = uuid.uuid4().hex
        self.num_refused = 0
        self._on_low = on_low
        self._clock = clock
        self._version = ""
        self._limits: Mapping[str, float] = {}
        self._rates: dict[str, LeasedRate] = {}  # that were used lately
        self._number = 0
        self._asked = self._exchanged = clock()  # times of the last question, and of the last that was answered

    @property
    def num_rates(self) -> int:
        return len(self._rates)

    def charge(self, key: str) -> "RequestCharge | None":
        """Charge one request. None: the key has no limits, or is unknown. Raises ApiError if a rate is used up."""
        if not self._limits or not key:
            return None
        now, key_hash = self._clock(), hash_of(key)
        self._end_old_leases(now)
        requests, tokens = self._rate(requests_rate(key_hash), now), self._rate(tokens_rate(key_hash), now)
        if requests is None and tokens is None:
            return None
        self._check(requests, now, "more requests than your key allows in a minute")
        self._check(tokens, now, "more tokens than your key allows in a minute")
        self._take(requests, 1.0)
        return RequestCharge(self, requests, tokens)

    def _rate(self, name: str, now: float) -> LeasedRate | None:
        if name not in self._limits:
            return None
        if name not in self._rates:
            if len(self._rates) >= MOST_RATES:
                return None
            self._rates[name] = LeasedRate(self._limits[name], now)
        return self._rates[name]

    def _check(self, rate: LeasedRate | None, now: float, refusal: str) -> None:
        if rate is None:
            return
        rate.used = now
        if rate.is_low:
            self._on_low()
        if wait_s := rate.wait_s():
            self.num_refused += 1
            raise too_many(refusal, wait_s)

    def _take(self, rate: LeasedRate | None, amount: float) -> None:
        if rate is not None and amount:
            rate.take(amount, self._clock())
            if rate.is_low:
                self._on_low()

    def settle(self, charge: "RequestCharge", num_requests: float, num_tokens: float) -> None:
        """The request has ended, and used this in all."""
        self._take(charge.requests, num_requests - 1.0)
        self._take(charge.tokens, num_tokens)

    # ---- exchanges ----

    def ask(self) -> LeaseQuestion:
        now = self._clock()
        self._end_old_leases(now)
        self._number += 1
        self._asked = now
        holdings = {name: rate.tell(now) for name, rate in self._rates.items()}
        return LeaseQuestion(gateway=self.gateway, number=self._number, limits=self._version, holdings=holdings)

    def take_reply(self, question: LeaseQuestion, reply: LeaseReply) -> None:
        """The answer to the last question."""
        self._exchanged = self._asked
        if reply.per_minute is not None:
            self._follow(reply.limits, reply.per_minute)
        for name, grant in reply.grants.items():
            if (rate := self._rates.get(name)) is not None:
                rate.granted += grant.amount
                rate.held += grant.amount
                rate.target = grant.target
        for name, told in question.holdings.items():
            rate = self._rates.get(name)
            if rate is not None and not told.is_wanted and not rate.is_wanted(self._clock()):
                del self._rates[name]

    def _follow(self, version: str, per_minute: Mapping[str, float]) -> None:
        self._version, self._limits = version, per_minute
        for name in [*self._rates]:
            if name in per_minute:
                self._rates[name].per_minute = per_minute[name]
            else:
                del self._rates[name]

    def _end_old_leases(self, now: float) -> None:
        """The keeper was not heard for long, and may soon give to others what this gateway holds."""
        if now - self._exchanged > LEASE_S:
            self._exchanged = now
            for rate in self._rates.values():
                rate.return_above(0.0)


@dataclass(frozen=True)
class RequestCharge:
    """A request that was charged to its client's rates."""

    leases: Leases
    requests: LeasedRate | None
    tokens: LeasedRate | None

    def settle(self, num_requests: float, num_tokens: float) -> None:
        self.leases.settle(self, num_requests, num_tokens)
