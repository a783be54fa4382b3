"""Leases hold a client's rate for the whole fleet, whatever dies, gets lost or is late."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from surefoot.fleet.leases import AHEAD, IDLE_S, Leases
from surefoot.fleet.replica.lease_keeper import SILENT_S
from tests.fleet.lease_world import KEY, LeaseGateway, LeaseWorld, limits_of

MOST_GATEWAYS = 3
WHICH = st.integers(0, MOST_GATEWAYS - 1)


class LeaseMachine(RuleBasedStateMachine):
    """Compares all that gateways let through with one bucket that knows everything."""

    @initialize(
        per_minute=st.sampled_from([0.5, 1.0, 6.0, 60.0, 600.0]),
        num_gateways=st.integers(1, MOST_GATEWAYS),
        is_calm=st.booleans(),
    )
    def start(self, per_minute: float, num_gateways: int, is_calm: bool) -> None:
        """is_calm: nothing happens that allows for more than the limit and one advance for each gateway."""
        self.per_minute = per_minute
        self.is_calm = is_calm
        self.world = LeaseWorld(limits_of(requests=per_minute), num_gateways)
        self.level = per_minute  # of the bucket that knows everything
        self.allowed = num_gateways * self._ahead  # that it may be overdrawn by

    @property
    def _ahead(self) -> float:
        return max(1.0, AHEAD * self.per_minute)

    @rule(which=WHICH, number=st.integers(1, 100), is_used=st.booleans())
    def ask(self, which: int, number: int, is_used: bool) -> None:
        """Many requests at once. is_used: False, they turn out to cost nothing."""
        gateway = self.world.gateways[which % len(self.world.gateways)]
        for _ in range(number):
            if not self._ask(gateway, is_used):
                return

    def _ask(self, gateway: LeaseGateway, is_used: bool) -> bool:
        if (charge := gateway.charge()) is None:
            return False
        charge.settle(float(is_used), 0.0)
        self.level -= is_used
        return True

    @rule()
    def ask_all(self) -> None:
        """As much as there is, at all gateways."""
        for gateway in self.world.gateways:
            self._ask(gateway, True)
            self.world.exchange(gateway)
        for gateway in self.world.gateways:
            while self._ask(gateway, True):
                pass

    @rule(seconds=st.integers(5, 90), using=WHICH, silent=WHICH)
    def live(self, seconds: int, using: int, silent: int) -> None:
        """Exchanges a second, but for one gateway's. Another uses the rate now and then, so that it keeps its lease."""
        gateways = self.world.gateways
        for second in range(seconds):
            self.advance(1.0)
            for number, gateway in enumerate(gateways):
                if number == using % len(gateways) and second % 5 == 0:
                    self._ask(gateway, True)
                if number != silent:
                    self.world.exchange(gateway)

    @rule(which=WHICH, is_heard=st.booleans(), is_answered=st.booleans())
    def exchange(self, which: int, is_heard: bool, is_answered: bool) -> None:
        gateway = self.world.gateways[which % len(self.world.gateways)]
        self.world.exchange(gateway, is_heard=is_heard, is_answered=is_answered)

    @rule()
    def exchange_all(self) -> None:
        for gateway in self.world.gateways:
            self.world.exchange(gateway)

    @rule(seconds=st.sampled_from([0.01, 1.0, 4.0, 6.0, SILENT_S + 1.0, 90.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.level = min(self.per_minute, self.level + seconds * self.per_minute / 60)

    @precondition(lambda self: not self.is_calm)
    @rule(which=WHICH)
    def kill_gateway(self, which: int) -> None:
        """Another one starts in its place, and may be ahead of the keeper as well."""
        self.world.gateways[which % len(self.world.gateways)] = self.world.make_gateway()
        self.allowed += self._ahead

    @rule()
    def kill_keeper(self) -> None:
        self.world.replace_keeper()

    @rule(which=WHICH, seconds=st.floats(0.0, 1000.0))
    def jump(self, which: int, seconds: float) -> None:
        self.world.gateways[which % len(self.world.gateways)].clock.now += seconds

    @precondition(lambda self: not self.is_calm)
    @rule(which=WHICH)
    def suspend(self, which: int) -> None:
        """The gateway's clock stands still: it may spend a lease that the keeper has given to others."""
        gateway = self.world.gateways[which % len(self.world.gateways)]
        if not gateway.is_suspended:
            self.allowed += self.per_minute
        gateway.is_suspended = not gateway.is_suspended

    @invariant()
    def the_limit_holds(self) -> None:
        if hasattr(self, "level"):
            assert self.level >= -self.allowed - 1e-6


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_the_limit_holds = LeaseMachine.TestCase


def test_a_request_right_before_an_exchange_makes_no_room_for_the_time_before() -> None:
    """Found by the machine, in 1,500 examples."""
    state = LeaseMachine()
    state.start(per_minute=600.0, num_gateways=1, is_calm=True)
    state.live(seconds=71, silent=1, using=0)
    state.ask_all()
    state.the_limit_holds()


@pytest.mark.parametrize("num_gateways", [1, 2, 3])
@pytest.mark.parametrize("per_minute", [6.0, 60.0, 600.0])
def test_a_client_who_floods_gets_the_limit(per_minute: float, num_gateways: int) -> None:
    """Ten minutes of refusals at all gateways; the keeper is replaced in the middle."""
    world, num_passed = LeaseWorld(limits_of(requests=per_minute), num_gateways), 0
    for second in range(600):
        for gateway in world.gateways:
            while gateway.charge() is not None:
                num_passed += 1
            world.exchange(gateway)
        if second == 300:
            world.replace_keeper()
        world.advance(1.0)
    most = 10 * per_minute + num_gateways * max(1.0, AHEAD * per_minute) + per_minute
    assert 0.95 * 10 * per_minute <= num_passed <= most


def test_a_full_bucket_can_be_spent_at_once_at_one_gateway() -> None:
    world = LeaseWorld(limits_of(requests=60.0), 2)
    world.live(60)
    first, second = world.gateways
    assert first.charge() is not None  # after a pause it holds nothing
    assert first.is_due
    world.exchange(first)
    passed = 0
    while first.charge() is not None:
        passed += 1
    assert passed >= 59  # all, and what it may be ahead
    assert second.charge() is not None  # a debt of its own
    world.exchange(second)
    assert not second.is_due


def keep_lease(world: LeaseWorld, using: LeaseGateway, seconds: int) -> None:
    """One gateway uses the rate now and then; all gateways of the world exchange."""
    for second in range(seconds):
        if second % 5 == 0:
            using.charge()
        for gateway in world.gateways:
            world.exchange(gateway)
        world.advance(1.0)


def spend_all(world: LeaseWorld, gateways: list[LeaseGateway]) -> int:
    """Requests that pass at one moment."""
    passed = 0
    for gateway in gateways:
        passed += gateway.charge() is not None
        world.exchange(gateway)
    for gateway in gateways:
        while gateway.charge() is not None:
            passed += 1
    return passed


MOST_AT_ONCE = 60 + 2 * 15 + 1  # a minute's worth, and what two gateways may be ahead


def test_what_is_held_is_not_saved_up_once_more() -> None:
    world = LeaseWorld(limits_of(requests=60.0), 2)
    keep_lease(world, world.gateways[0], 150)
    assert 60 <= spend_all(world, world.gateways) <= MOST_AT_ONCE


def test_a_lease_ends_before_others_get_it() -> None:
    """The first gateway is alive, but was not heard for long, as behind a link that was cut."""
    world = LeaseWorld(limits_of(requests=60.0), 2)
    first, second = world.gateways
    keep_lease(world, first, 100)
    world.gateways = [second]
    keep_lease(world, second, 100)
    assert 60 <= spend_all(world, [first, second]) <= MOST_AT_ONCE


def test_a_light_client_is_never_refused() -> None:
    """One request every two seconds at alternating gateways, of 60 a minute; keepers and gateways die meanwhile."""
    world = LeaseWorld(limits_of(requests=60.0), 2)
    for turn in range(200):
        charge = world.gateways[turn % 2].charge()
        assert charge is not None, turn
        charge.settle(1.0, 0.0)
        if turn % 50 == 20:
            world.replace_keeper()
        if turn % 50 == 40:
            world.gateways[1] = world.make_gateway()
        for gateway in world.gateways:
            world.exchange(gateway)
        world.advance(2.0)


def test_tokens_are_charged_when_a_request_ends() -> None:
    world = LeaseWorld(limits_of(tokens=1000.0), 1)
    (gateway,) = world.gateways
    world.live(60)
    first = gateway.charge()
    assert first is not None
    world.exchange(gateway)
    first.settle(1.0, 3000.0)  # more than a minute's worth, which nobody knew beforehand
    assert gateway.charge() is None
    waited = 0
    while gateway.charge() is None:
        world.advance(1.0)
        world.exchange(gateway)
        waited += 1
    assert 100 <= waited <= 130  # 2,000 tokens of debt, less what it may be ahead


def test_what_is_not_used_is_returned() -> None:
    world = LeaseWorld(limits_of(requests=60.0), 2)
    first, _ = world.gateways
    world.live(60)
    assert first.charge() is not None
    world.exchange(first)
    assert world.keeper.num_rates == first.leases.num_rates == 1
    world.live(int(IDLE_S) + 1)
    assert world.keeper.num_rates == first.leases.num_rates == 0


def test_gateways_divide_a_rate_that_both_use() -> None:
    world = LeaseWorld(limits_of(requests=60.0), 2)
    for _ in range(120):
        for gateway in world.gateways:
            gateway.charge()
            world.exchange(gateway)
        world.advance(1.0)
    for gateway in world.gateways:
        world.exchange(gateway)
    questions = [gateway.leases.ask().holdings for gateway in world.gateways]
    assert all(holding.held <= 30.0 for holdings in questions for holding in holdings.values())


def test_changed_limits_are_followed() -> None:
    world = LeaseWorld(limits_of(requests=60.0), 1)
    (gateway,) = world.gateways
    world.live(60)
    gateway.charge()
    world.exchange(gateway)
    world.limits = limits_of(requests=6.0)
    for _ in range(3):
        world.exchange(gateway)
    passed = 0
    while gateway.charge() is not None:
        passed += 1
    assert passed <= 6 + 1
    world.limits = limits_of()
    world.exchange(gateway)
    assert gateway.leases.charge(KEY) is None  # no limit


def test_without_limits_servers_charge() -> None:
    leases = Leases(lambda: None)
    assert leases.charge(KEY) is None
    assert leases.charge("") is None
