"""Gateways and keepers of rates in one process, with a clock for each, messages that get lost, and deaths."""

from dataclasses import dataclass, field

from surefoot.fleet.leases import LeaseQuestion, Leases, RequestCharge
from surefoot.fleet.replica.lease_keeper import LateQuestion, LeaseKeeper
from surefoot.server.access.key_file import hash_of
from surefoot.server.access.rates import RateLimits, requests_rate, tokens_rate
from surefoot.server.errors import ApiError

KEY = "a client's key"


def limits_of(requests: float | None = None, tokens: float | None = None) -> RateLimits:
    named = {requests_rate(hash_of(KEY)): requests, tokens_rate(hash_of(KEY)): tokens}
    limits = {name: limit for name, limit in named.items() if limit is not None}
    return RateLimits(f"{requests} {tokens}", limits, dict.fromkeys(limits, "alice"))


@dataclass
class OwnClock:
    """A process's monotonic clock. Its zero means nothing to others."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class LeaseGateway:
    clock: OwnClock
    leases: Leases = field(init=False)
    is_due: bool = False
    is_suspended: bool = False
    lost: LeaseQuestion | None = None  # a question that did not arrive yet

    def __post_init__(self) -> None:
        self.leases = Leases(self._be_due, self.clock)

    def _be_due(self) -> None:
        self.is_due = True

    def charge(self) -> RequestCharge | None:
        """None: refused."""
        try:
            charge = self.leases.charge(KEY)
        except ApiError:
            return None
        assert charge is not None, "the limits are not known yet"
        return charge


class LeaseWorld:
    """All gateways agree on the keeper."""

    def __init__(self, limits: RateLimits, num_gateways: int) -> None:
        self.limits = limits
        self.clocks: list[OwnClock] = []
        self.keeper = self._make_keeper()
        self.gateways = [self.make_gateway() for _ in range(num_gateways)]

    def _clock(self) -> OwnClock:
        self.clocks.append(OwnClock(1000.0 * len(self.clocks)))
        return self.clocks[-1]

    def _make_keeper(self) -> LeaseKeeper:
        return LeaseKeeper(lambda: self.limits, self._clock())

    def make_gateway(self) -> LeaseGateway:
        """It learns the limits at once."""
        gateway = LeaseGateway(self._clock())
        self.exchange(gateway)
        return gateway

    def replace_keeper(self) -> None:
        self.keeper = self._make_keeper()

    def advance(self, seconds: float) -> None:
        suspended = [gateway.clock for gateway in getattr(self, "gateways", ()) if gateway.is_suspended]
        for clock in self.clocks:
            if not any(clock is other for other in suspended):
                clock.now += seconds

    def live(self, seconds: int) -> None:
        """Time goes by, with an exchange a second."""
        for _ in range(seconds):
            self.advance(1.0)
            for gateway in self.gateways:
                self.exchange(gateway)

    def exchange(self, gateway: LeaseGateway, *, is_heard: bool = True, is_answered: bool = True) -> None:
        """is_heard: False, the question arrives after the next one. is_answered: False, the reply is lost."""
        gateway.is_due = False
        question = gateway.leases.ask()
        if not is_heard:
            gateway.lost = question
            return
        reply = self.keeper.answer(question)
        if is_answered:
            gateway.leases.take_reply(question, reply)
        self._deliver_lost(gateway)

    def _deliver_lost(self, gateway: LeaseGateway) -> None:
        late, gateway.lost = gateway.lost, None
        if late is not None:
            try:
                self.keeper.answer(late)
            except LateQuestion:
                return
            raise AssertionError("a late question was answered")
