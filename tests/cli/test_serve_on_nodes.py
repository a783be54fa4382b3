"""Which way `surefoot serve` uses several NUMA nodes, on machines that are made up."""

from dataclasses import replace
from typing import Any

import pytest

from surefoot.api.opening import open_model
from surefoot.cli import serve_on_nodes
from surefoot.formats import AUTO_FORMAT
from surefoot.machine import NodeShare, Placement, choose_placement, usable_cores
from surefoot.ops.node_probe import NodeBandwidth
from surefoot.plan import machines
from surefoot.speed.rates import NodeLink
from tests.cli.process import run
from tests.plan.machines import GB, machine
from tests.stories import stories_gguf

FAST, SLOW = NodeLink(2, 1e12, 0.0), NodeLink(2, GB / 1000, 0.1)
GIVEN: dict[str, Any] = {
    "nodes": None, "fleet_key": None, "variant": "portable", "threads": None, "float_format": AUTO_FORMAT,
    "max_running": 32, "models": [stories_gguf()], "config": None, "memory": None, "max_wait": None, "keep_alive": None,
    "max_context": None, "speculate": "off", "kv_memory": None, "pooling": None, "chat_template": None,
    "sampling": None, "adapter": None,
}  # fmt: skip


@pytest.mark.parametrize(("link", "way", "other"), [(FAST, "split", "each"), (SLOW, "each", "split")])
def test_the_prediction_decides_and_is_told(
    monkeypatch: pytest.MonkeyPatch, link: NodeLink, way: str, other: str
) -> None:
    slow_memory = machine(read=GB / 1000)
    two = replace(slow_memory, rates=replace(slow_memory.rates, link=link))
    monkeypatch.setattr(serve_on_nodes, "glance_at_machine", lambda variant, threads: two)
    lines: list[str] = []
    assert serve_on_nodes.runs_on_each(GIVEN, open_model(stories_gguf()), lines.append) == (way == "each")
    (line,) = lines
    assert line.startswith(f"nodes    {way}, by prediction for 32 users at once: ")
    assert line.endswith(f"(--nodes {other})")


def test_what_has_no_room_for_two_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    two = replace(machine(), rates=replace(machine().rates, link=SLOW))
    monkeypatch.setattr(serve_on_nodes, "glance_at_machine", lambda variant, threads: two)
    needed = serve_on_nodes._footprint(GIVEN, open_model(stories_gguf())).total
    monkeypatch.setattr(serve_on_nodes, "memory_limit", lambda asked: 2 * needed - 1)
    assert not serve_on_nodes.runs_on_each(GIVEN, open_model(stories_gguf()), print)


@pytest.mark.parametrize(("asked", "is_each"), [("split", False), ("each", True)])
def test_what_is_asked_for_is_done(asked: str, is_each: bool) -> None:
    assert serve_on_nodes.runs_on_each({**GIVEN, "nodes": asked}, open_model(stories_gguf()), print) == is_each


@pytest.mark.parametrize(("given", "told"), [({"nodes": "both"}, "take split or each"),
                                             ({"nodes": "each", "fleet_key": "x"}, "--fleet-key")])  # fmt: skip
def test_what_cannot_be_done_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        serve_on_nodes.runs_on_each({**GIVEN, **given}, open_model(stories_gguf()), print)


def test_servers_of_a_fleet_are_one_engine_each() -> None:
    assert not serve_on_nodes.runs_on_each({**GIVEN, "fleet_key": "x"}, open_model(stories_gguf()), print)


def test_one_node_has_nothing_to_choose_from() -> None:
    if choose_placement(usable_cores()).shares:
        pytest.skip("this machine has several nodes")
    ended = run("serve", str(stories_gguf()), "--nodes", "each", "--port", "0")
    assert ended.returncode == 1
    assert "--nodes has nothing to choose from: " in ended.stderr


def test_a_glance_sums_what_nodes_read_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = (NodeShare(0, (0,), 1), NodeShare(1, (1,), 1))
    reads = [NodeBandwidth(a, b, 1, 30e9 if a == b else 10e9 + a) for a in (0, 1) for b in (0, 1)]
    monkeypatch.setattr(machines.machine, "choose_placement", lambda threads: Placement(shares))
    monkeypatch.setattr(machines, "node_bandwidths", lambda *words: tuple(reads))
    rates = machines.glance_at_machine("portable", 2).rates
    assert rates.read_bytes_per_second == 60e9
    assert rates.link == NodeLink(2, 10e9, machines.LINE_S)
