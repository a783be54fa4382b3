"""A client's rates over two gateways and two servers, as real processes."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot.server.access.key_file import KeyEntry, add_key, hash_of
from tests.fleet.failover import CHAT, CHAT_PATH
from tests.fleet.running import kill, start_gateway, start_replica
from tests.server.process import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly
LIMITED, FREE, COUNTED, ADMIN = "limited key", "free key", "counted key", "admin key"
PER_MINUTE = 6.0
AHEAD = 1.5  # of each gateway


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    keys = tmp_path / "keys.toml"
    limits: dict[str, dict[str, Any]] = {
        LIMITED: {"requests_per_minute": PER_MINUTE},
        COUNTED: {"tokens_per_minute": 100.0},
        FREE: {},
        ADMIN: {"admin": True},
    }
    for key, more in limits.items():
        add_key(keys, KeyEntry.model_validate({"hash": hash_of(key), "user": key.replace(" ", "-"), **more}))
    made = [start_replica(tmp_path, "--keys", str(keys)) for _ in range(2)]
    yield made
    for server in made:
        server.stop()


@pytest.fixture
def gateways(servers: list[Server], tmp_path: Path) -> Iterator[list[Server]]:
    made = [start_gateway(servers, tmp_path) for _ in range(2)]
    for gateway in made:
        wait_for(lambda gateway=gateway: rates(gateway)["keeper"] is not None)  # type: ignore[misc]
    yield made
    for gateway in made:
        gateway.stop()


def rates(gateway: Server) -> dict[str, Any]:
    return httpx.get(f"{gateway.root}/health").json()["rates"]


def ask(gateway: Server, key: str, **more: Any) -> httpx.Response:
    body = {**CHAT, "max_tokens": 1, **more}
    return httpx.post(gateway.root + CHAT_PATH, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def flood(gateways: list[Server], number: int) -> int:
    """How many requests were answered. Half of them go to each gateway."""
    replies = [ask(gateways[turn % 2], LIMITED) for turn in range(number)]
    assert {reply.status_code for reply in replies} <= {200, 429}
    assert all("Retry-After" in reply.headers for reply in replies if reply.status_code == 429)
    return sum(reply.status_code == 200 for reply in replies)


def most_since(began: float) -> float:
    """Requests that may have passed. On a machine that stands still for seconds, both servers may keep rates at
    times."""
    return PER_MINUTE + 2 * AHEAD + 2 * (time.monotonic() - began) * PER_MINUTE / 60


def test_two_gateways_hold_one_rate(servers: list[Server], gateways: list[Server]) -> None:
    wait_for(lambda: {rates(gateway)["keeper"] for gateway in gateways} == {servers[0].root})
    began = time.monotonic()
    num_passed = flood(gateways, 60)
    assert 2 <= num_passed <= most_since(began)
    assert sum(rates(gateway)["refused_requests"] for gateway in gateways) == 60 - num_passed
    wait_for(lambda: servers[0].metric("surefoot:fleet_lease_gateways", ADMIN) == 2)
    wait_for(lambda: all(rates(gateway)["gateways"] == 2 for gateway in gateways))
    assert all(rates(gateway)["kept_s"] > 0 for gateway in gateways)
    assert servers[0].metric("surefoot:fleet_leased_rates", ADMIN) <= 1
    # What is not limited passes, and a key that nobody knows is refused by a server.
    assert ask(gateways[0], FREE).status_code == 200
    assert ask(gateways[0], "unknown").status_code == 401
    headers = {"Authorization": f"Bearer {LIMITED}"}
    assert httpx.get(f"{gateways[0].root}/v1/models", headers=headers).status_code == 200

    kill(servers[0])
    wait_for(lambda: {rates(gateway)["keeper"] for gateway in gateways} == {servers[1].root})
    num_passed += flood(gateways, 60)
    assert num_passed <= most_since(began)


def test_tokens_are_counted_by_the_server_that_answers(gateways: list[Server]) -> None:
    """An answer of more tokens than a minute allows: nothing more until these are refilled."""
    whole = ask(gateways[0], COUNTED, max_tokens=200, ignore_eos=True)
    assert whole.json()["usage"]["completion_tokens"] == 200
    wait_for(lambda: ask(gateways[0], COUNTED).status_code == 429)
    assert rates(gateways[0])["leases"] >= 1
