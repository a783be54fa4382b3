"""Threads on NUMA nodes, on machines that we do not have."""

import os
from pathlib import Path

import pytest

from surefoot.machine import NodeShare, Placement, choose_placement
from tests.machine.recorded import record, server

XEON = server(sockets=2, cores=16, threads=2)


def allow(monkeypatch: pytest.MonkeyPatch, cpus: set[int]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)


def test_threads_are_bound_to_the_processors_of_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, XEON)
    allow(monkeypatch, set(range(64)))
    first, second = choose_placement(32, tmp_path).shares
    assert first == NodeShare(0, (*range(16), *range(32, 48)), 16)
    assert second == NodeShare(1, (*range(16, 32), *range(48, 64)), 16)


@pytest.mark.parametrize(
    ("threads", "cpus", "expected"),
    [
        (32, set(range(32)), {0: 16, 1: 16}),
        (5, set(range(32)), {0: 3, 1: 2}),
        (1, set(range(32)), {}),
        (12, {*range(8), *range(16, 20)}, {0: 8, 1: 4}),  # an affinity of 8 and 4 cores
        (3, {*range(8), *range(16, 20)}, {0: 2, 1: 1}),
        (8, set(range(16, 24)), {}),
    ],
)
def test_threads_in_proportion_to_usable_cores(
    threads: int, cpus: set[int], expected: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, XEON)
    allow(monkeypatch, cpus)
    placement = choose_placement(threads, tmp_path)
    assert {share.node: share.threads for share in placement.shares} == expected
    assert bool(placement.reason) == (not expected)


def test_few_threads_leave_nodes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, server(sockets=2, cores=64, nodes=4))
    allow(monkeypatch, set(range(128)))
    assert [share.threads for share in choose_placement(3, tmp_path).shares] == [1, 1, 1]
    assert [share.threads for share in choose_placement(128, tmp_path).shares] == [16] * 8


def test_nothing_is_bound_where_memory_is_of_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, XEON, memory_nodes="1")
    allow(monkeypatch, set(range(32)))
    placement = choose_placement(32, tmp_path)
    assert placement.shares == ()
    assert "node 0, but none of its memory" in placement.reason


@pytest.mark.parametrize(("quota", "is_bound"), [(24.0, False), (32.0, True), (None, True)])
def test_nothing_is_bound_under_a_quota(
    quota: float | None, is_bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, XEON)
    allow(monkeypatch, set(range(32)))
    monkeypatch.setattr("surefoot.machine.placement.cpu_quota", lambda _: quota)
    placement = choose_placement(24, tmp_path)
    assert bool(placement.shares) == is_bound
    assert ("quota of 24" in placement.reason) == (not is_bound)


def test_a_machine_of_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, server(sockets=1, cores=64))
    allow(monkeypatch, set(range(64)))
    assert choose_placement(64, tmp_path) == Placement(reason="the machine has one NUMA node")


def test_any_first_threads_are_of_all_nodes() -> None:
    placement = Placement((NodeShare(0, (0,), 6), NodeShare(1, (1,), 3)))
    nodes = placement.node_of_thread()
    assert sorted(nodes) == [0] * 6 + [1] * 3
    assert nodes[0] == 0  # the caller's
    for count in (3, 6):
        assert nodes[:count].count(0) == 2 * nodes[:count].count(1)
