"""A fleet over Ray nodes that are machines of their own: a node dies, a link is cut, the head dies and comes back."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fleet.network import Machine, NoNamespaces, machines
from tests.fleet.ray_fleet import (
    GATEWAY_RESOURCE,
    SERVER_OPTIONS,
    RayFleet,
    Stream,
    ask_all,
    describe_fleet,
    long_request,
)
from tests.fleet.ray_nodes import LONG_S, RayNode, head_node, redis_server, worker_node
from tests.fleet.running import key_file, num_ready, start_gateway
from tests.server.process import Server
from tests.smollm2 import find_file
from tests.waiting import PATIENCE_S, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'surefoot[fleet]' (750 MB)")
pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.reference]
NUM_BEGUN = 20  # events of a stream, after which something happens
BODIES = [long_request(seed, 300) for seed in range(8)]
LONG, NUM_LONG = long_request(99, 7000), 6  # six at once last longer than a head takes to come back


@pytest.fixture
def places() -> Iterator[list[Machine]]:
    try:
        with machines(3) as made:
            yield made
    except NoNamespaces as reason:
        pytest.skip(str(reason))


@contextmanager
def started(fleet: RayFleet, nodes: Sequence[RayNode]) -> Iterator[None]:
    """Nodes that failed to start are started again."""

    def is_up() -> bool:
        for node in nodes:
            node.ensure()
        return fleet.node.is_running and fleet.up()

    try:
        wait_for(is_up, "a fleet", LONG_S)
        yield
    finally:
        for node in nodes:
            node.kill()


def of_one_machine(folder: Path, bodies: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Events of the replies of one undisturbed server behind a gateway: without one, a server merges what a slow reader
    has not read."""
    server = Server(find_file(), "--fleet-key", str(key_file(folder)), *SERVER_OPTIONS)
    gateway = start_gateway([server], folder)
    try:
        wait_for(lambda: num_ready(gateway) == 1)
        return [Stream(gateway.root, "", body).whole() for body in bodies]
    finally:
        gateway.stop()
        server.stop()


def num_running(fleet: RayFleet, url: str) -> float:
    """Requests that the server computes."""
    page = httpx.get(f"{url}/metrics", headers={"x-api-key": fleet.key}, timeout=PATIENCE_S).text
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("vllm:num_requests_running{"))


def busiest(fleet: RayFleet, urls: Sequence[str], nodes: Sequence[RayNode]) -> RayNode:
    """The node whose server computes most requests, of those at these addresses."""
    loads = {httpx.URL(url).host: num_running(fleet, url) for url in urls}
    node = max(nodes, key=lambda node: loads[node.machine.address])
    assert loads[node.machine.address] > 0, f"no stream is at a node that may be struck: {loads}"
    return node


def replica_urls(fleet: RayFleet) -> list[str]:
    return [member["url"] for member in fleet.status()["members"] if member["name"] != "gateway"]


def check_streams(fleet: RayFleet, wanted: list[list[dict[str, Any]]], strike: Callable[[], None]) -> None:
    """Streams that are struck have one machine's events."""
    streams = ask_all(fleet.root, fleet.key, BODIES)
    wait_for(lambda: all(len(stream.events) >= NUM_BEGUN for stream in streams), "the streams' beginning")
    strike()
    assert [stream.whole() for stream in streams] == wanted


def await_ready(fleet: RayFleet, nodes: Sequence[RayNode]) -> None:
    """A node that has ended is started again, as systemd would do."""

    def is_ready() -> bool:
        for node in nodes:
            node.ensure()
        return bool(fleet.status().get("ready"))

    wait_for(is_ready, "the fleet's recovery", LONG_S)


def test_a_node_is_killed_and_a_link_is_cut(places: list[Machine], tmp_path: Path) -> None:
    """The gateway is on the head, which has no server. Each other node has one."""
    wanted = of_one_machine(tmp_path, BODIES)
    head = head_node(places[0], tmp_path / "head.log", "--num-cpus=0", GATEWAY_RESOURCE)
    workers = [worker_node(place, places[0], tmp_path / f"{place.name}.log") for place in places[1:]]
    nodes = [head, *workers]
    fleet = describe_fleet(tmp_path, places[0], head, len(workers))
    with started(fleet, nodes):
        urls = replica_urls(fleet)
        assert {httpx.URL(url).host for url in urls} == {place.address for place in places[1:]}
        check_streams(fleet, wanted, lambda: None)
        assert fleet.health()["failovers"] == 0

        check_streams(fleet, wanted, lambda: busiest(fleet, urls, workers).kill())
        assert (num_failovers := fleet.health()["failovers"]) > 0
        await_ready(fleet, nodes)

        urls = replica_urls(fleet)
        struck: list[Machine] = []

        def cut() -> None:
            struck.append(busiest(fleet, urls, workers).machine)
            struck[0].cut()

        check_streams(fleet, wanted, cut)
        assert fleet.health()["failovers"] > num_failovers
        struck[0].mend()
        await_ready(fleet, nodes)
        check_streams(fleet, wanted, lambda: None)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_the_head_is_killed_and_comes_back(places: list[Machine], tmp_path: Path) -> None:
    """The gateway and the servers are on other nodes. Redis keeps Ray's state."""
    wanted, *others = of_one_machine(tmp_path, [LONG, *BODIES[:2]])
    with redis_server(tmp_path) as redis:
        head = head_node(places[0], tmp_path / "head.log", "--num-cpus=0", redis=redis)
        first = worker_node(places[1], places[0], tmp_path / "first.log", GATEWAY_RESOURCE)
        nodes = [head, first, worker_node(places[2], places[0], tmp_path / "second.log")]
        fleet = describe_fleet(tmp_path, places[0], first, 2)
        with started(fleet, nodes):
            before = fleet.status()["members"]
            streams = ask_all(fleet.root, fleet.key, [LONG] * NUM_LONG)
            wait_for(lambda: all(len(stream.events) >= NUM_BEGUN for stream in streams), "the streams' beginning")
            head.kill()
            assert Stream(fleet.root, fleet.key, BODIES[0]).whole() == others[0]
            await_ready(fleet, nodes)
            assert not any(stream.has_ended for stream in streams), "the streams were too short"
            assert fleet.status()["members"] == before, "a process was started again"
            assert Stream(fleet.root, fleet.key, BODIES[1]).whole() == others[1]
            assert [stream.whole() for stream in streams] == [wanted] * NUM_LONG
            assert fleet.health()["failovers"] == 0
