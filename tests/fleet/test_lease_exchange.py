"""A gateway's exchanges with servers that stand in for real ones."""

import asyncio
from collections.abc import Callable

import httpx2
from pydantic import BaseModel

from surefoot.fleet.frames import KEY_HEADER, STATE_PATH, ReplicaState
from surefoot.fleet.lease_exchange import LeaseExchange, choose_keeper
from surefoot.fleet.leases import LEASES_PATH, KeeperStatus, LeaseHolding, LeaseQuestion
from surefoot.fleet.members import Members
from surefoot.fleet.replica.lease_keeper import LeaseKeeper
from tests.fleet.lease_world import KEY, OwnClock, limits_of

FLEET_KEY = "fleet"


def reply_of(message: BaseModel) -> httpx2.Response:
    return httpx2.Response(200, stream=httpx2.ByteStream(message.model_dump_json().encode()))


class StandIns:
    """Servers by host name: a, b, c. `started` says since when each runs; None: a server of an older version."""

    def __init__(self, **started: float | None) -> None:
        self.started = started
        self.broken: set[str] = set()
        self.keepers = {name: LeaseKeeper(lambda: limits_of(requests=60.0)) for name in started}

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        assert request.headers[KEY_HEADER] == FLEET_KEY
        name = request.url.host
        if request.url.path == STATE_PATH:
            state = ReplicaState(
                boot=name, started=self.started[name], identity="same", is_draining=False, patience_s=2.0,
                backlog_tokens=0, token_ms=1.0,
            )  # fmt: skip
            return reply_of(state)
        assert request.url.path == LEASES_PATH
        if name in self.broken:
            return httpx2.Response(500)
        answer = self.keepers[name].answer(LeaseQuestion.model_validate_json(request.content))
        return reply_of(answer)

    def members(self) -> Members:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        return Members([f"http://{name}" for name in self.started], FLEET_KEY, client)


def keeper_of(members: Members, servers: StandIns, then: Callable[[LeaseExchange], None] = lambda _: None) -> str:
    """The keeper's address after an exchange, and another one if something was done meanwhile."""

    async def run() -> str:
        await members.meet()
        exchange = LeaseExchange(members)
        await exchange.exchange()
        then(exchange)
        await exchange.exchange()
        await exchange.exchange()
        return "" if exchange.keeper is None else exchange.keeper.url

    return asyncio.run(run())


def test_the_server_that_runs_longest_keeps_rates() -> None:
    servers = StandIns(a=30.0, b=10.0, c=None)
    assert keeper_of(servers.members(), servers) == "http://b"
    assert servers.keepers["b"].num_gateways == 1
    assert servers.keepers["a"].num_gateways == 0


def test_another_one_is_asked_if_it_does_not_answer() -> None:
    servers = StandIns(a=30.0, b=10.0)
    assert keeper_of(servers.members(), servers, lambda _: servers.broken.add("b")) == "http://a"


def test_a_keeper_that_is_alone_is_asked_again() -> None:
    servers = StandIns(b=10.0)
    servers.broken.add("b")
    assert keeper_of(servers.members(), servers, lambda _: servers.broken.clear()) == "http://b"


def test_the_keeper_tells_who_holds_leases() -> None:
    """Both rates of one user; at first the buckets are empty."""
    clock, limits = OwnClock(100.0), limits_of(requests=60.0, tokens=600.0)
    keeper = LeaseKeeper(lambda: limits, clock)
    nothing = dict.fromkeys(limits.per_minute, LeaseHolding(granted=0.0, held=0.0))
    first = keeper.answer(LeaseQuestion(gateway="one", number=1, holdings=nothing)).status
    clock.now += 5.0
    second = keeper.answer(LeaseQuestion(gateway="two", number=1, holdings=nothing)).status
    assert first == KeeperStatus(seconds=0.0, num_users=0, num_gateways=1)
    assert second == KeeperStatus(seconds=5.0, num_users=1, num_gateways=2)


def test_a_gateway_knows_the_keepers_status() -> None:
    servers, statuses = StandIns(a=1.0), list[KeeperStatus | None]()
    keeper_of(servers.members(), servers, lambda exchange: statuses.append(exchange.status))
    assert statuses[0] is not None
    assert statuses[0].num_gateways == 1


def test_older_servers_charge_requests_themselves() -> None:
    servers = StandIns(c=None)
    members = servers.members()
    assert keeper_of(members, servers) == ""
    assert choose_keeper(members) is None


def test_a_gateway_charges_once_it_knows_the_limits() -> None:
    servers, charges = StandIns(a=1.0), []
    keeper_of(servers.members(), servers, lambda exchange: charges.append(exchange.leases.charge(KEY)))
    assert charges[0] is not None
    assert servers.keepers["a"].num_rates <= 1
