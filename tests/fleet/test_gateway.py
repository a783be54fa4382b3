"""A real gateway in front of real servers, and what it refuses."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from surefoot.fleet.gateway import may_watch
from tests.fleet.failover import CHAT_PATH
from tests.fleet.gateway import LONG, streamed
from tests.fleet.running import num_ready, start_gateway, start_replica
from tests.server.process import Server
from tests.waiting import wait_for

UNLIKE = ("--sampling", "temperature=0", "--chat-template", "chatml")  # the same model file and arithmetic


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("fleet")
    made = [start_replica(folder, *words) for words in (UNLIKE, (), ())]  # most run the same
    yield made
    for server in made:
        server.stop()


def test_a_client_that_asks_again_at_once_keeps_its_connection(servers: list[Server], tmp_path: Path) -> None:
    """It has a whole reply before the gateway has heard its end."""
    gateway = start_gateway(servers[:1], tmp_path)
    try:
        wait_for(lambda: num_ready(gateway) == 1)
        connection = http.client.HTTPConnection("127.0.0.1", int(gateway.root.rpartition(":")[2]), timeout=60)
        for _ in range(50):
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read()
            assert connection.sock is not None, "closed"
        connection.close()
    finally:
        gateway.stop()


def test_a_server_with_other_settings_is_refused_and_a_death_is_not_seen(servers: list[Server], tmp_path: Path) -> None:
    gateway = start_gateway(servers, tmp_path)
    try:
        wait_for(lambda: num_ready(gateway) == 2)
        plain = httpx.post(servers[1].root + CHAT_PATH, json=LONG, timeout=60).json()
        whole = plain["choices"][0]["message"]["content"]
        assert httpx.post(gateway.root + CHAT_PATH, json=LONG, timeout=60).json()["choices"] == plain["choices"]
        assert streamed(gateway.root) == whole
        assert httpx.get(f"{gateway.root}/v1/models").json()["data"][0]["id"] == "small"
        assert httpx.post(f"{gateway.root}/v1/files", content=b"x").status_code == 501
        assert httpx.get(f"{gateway.root}/fleet/state").status_code == 404
        assert httpx.post(gateway.root + CHAT_PATH, json={**LONG, "n": 0}).status_code == 400
        # One of the two that take part dies, whether it has the stream or not.
        assert streamed(gateway.root, (20, servers[1:2])) == whole
        assert streamed(gateway.root) == whole
        wait_for(lambda: num_ready(gateway) == 1)
        check_metrics(httpx.get(f"{gateway.root}/metrics"), httpx.get(f"{gateway.root}/health").json())
    finally:
        log = gateway.stop()
    assert "is refused: other settings than the fleet's" in log


def check_metrics(reply: httpx.Response, health: dict[str, Any]) -> None:
    """After the requests of the test above."""
    assert reply.headers["content-type"].startswith("text/plain")
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }
    statuses = {name[1]: value for name, value in values.items() if name[0] == "surefoot:gateway_requests_total"}
    assert statuses == {"200": 5, "400": 1, "404": 1, "501": 1}
    assert values["surefoot:gateway_failovers_total",] == health["failovers"]
    assert values["surefoot:gateway_added_seconds_count",] == 6  # requests that a server was asked
    servers = [values["surefoot:gateway_servers", state] for state in ("ready", "refused", "away")]
    assert servers == [1, 1, 1]


def test_a_gateway_without_servers_says_so(tmp_path: Path, servers: list[Server]) -> None:
    gateway = start_gateway(servers[1:2], tmp_path)  # killed above
    try:
        assert httpx.get(f"{gateway.root}/health").status_code == 200
        assert httpx.get(f"{gateway.root}/ready").status_code == 503
    finally:
        gateway.stop()


@pytest.mark.parametrize(
    ("client", "headers", "may"),
    [
        ("127.0.0.1", [], True),
        ("::1", [], True),
        ("192.0.2.7", [], True),  # the gateway's own address
        ("192.0.2.8", [], False),
        ("192.0.2.8", [(b"x-surefoot-fleet", b"other")], False),
        ("192.0.2.8", [(b"x-surefoot-fleet", b"secret")], True),
    ],
)
def test_what_covers_all_users_needs_the_key_from_elsewhere(
    client: str, headers: list[tuple[bytes, bytes]], may: bool
) -> None:
    scope = {"client": (client, 1234), "server": ("192.0.2.7", 8000), "headers": headers}
    assert may_watch(scope, "secret") is may
