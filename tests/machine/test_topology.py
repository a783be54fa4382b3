"""Cores, sockets and nodes of machines that we do not have."""

import os
from collections import Counter
from pathlib import Path

import pytest

from surefoot import machine
from surefoot.machine.topology import PhysicalCore
from tests.machine.recorded import RecordedCore, desktop, record, server

MACHINES = {
    "two-socket Xeon": server(sockets=2, cores=32, threads=2),
    "EPYC with 4 nodes a socket": server(sockets=2, cores=64, threads=2, nodes=4),
    "Sierra Forest": server(sockets=2, cores=144),
    "Graviton": server(sockets=1, cores=64),
    "desktop": desktop(fast=8, slow=16),
}
GIB = 1 << 30


def allow(monkeypatch: pytest.MonkeyPatch, cpus: set[int]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)


@pytest.mark.parametrize("cores", MACHINES.values(), ids=list(MACHINES))
def test_a_machine_is_told_as_it_was_recorded(
    cores: list[RecordedCore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, cores)
    allow(monkeypatch, {cpu for core in cores for cpu in core.cpus})
    found, nodes = machine.physical_cores(tmp_path), machine.nodes(tmp_path)
    assert found == tuple(PhysicalCore(core.cpus, core.socket, is_fast=True) for core in cores)
    assert machine.usable_cores(tmp_path) == len(cores)
    assert [len(node.cores(found)) for node in nodes] == list(Counter(core.node for core in cores).values())
    assert all(node.memory_allowed and node.memory_bytes == 128 * GIB for node in nodes)
    assert all(node.distances[node.number] == 10 for node in nodes)


def test_distances_tell_near_nodes_from_those_of_another_socket(tmp_path: Path) -> None:
    record(tmp_path, MACHINES["EPYC with 4 nodes a socket"])
    assert machine.nodes(tmp_path)[5].distances == (32, 32, 32, 32, 12, 10, 12, 12)


@pytest.mark.parametrize("speeds_in", ["cpu_core", "cpu_capacity", "cpuinfo_max_freq"])
def test_fast_and_slow_cores(speeds_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, MACHINES["desktop"], speeds_in)
    allow(monkeypatch, set(range(32)))
    assert [core.is_fast for core in machine.physical_cores(tmp_path)] == [True] * 8 + [False] * 16
    allow(monkeypatch, set(range(16, 32)))  # then they hold up no others
    assert all(core.is_fast for core in machine.physical_cores(tmp_path))


def test_a_cpuset_of_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, MACHINES["two-socket Xeon"], memory_nodes="1")
    allow(monkeypatch, {*range(32, 64), *range(96, 128)})
    cores, nodes = machine.physical_cores(tmp_path), machine.nodes(tmp_path)
    assert {core.socket for core in cores} == {1}
    assert [len(node.cores(cores)) for node in nodes] == [0, 32]
    assert [node.memory_allowed for node in nodes] == [False, True]
    assert machine.usable_cores(tmp_path) == 32


def test_hardware_threads_count_by_core_also_where_some_are_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, server(sockets=1, cores=4, threads=2))
    allow(monkeypatch, {0, 1, 4, 7})
    assert [core.cpus for core in machine.physical_cores(tmp_path)] == [(0, 4), (1,), (7,)]


def test_a_kernel_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, {2, 3})
    assert machine.physical_cores(tmp_path) == (PhysicalCore((2,), 0, True), PhysicalCore((3,), 0, True))
    assert machine.nodes(tmp_path) == ()


def test_a_node_of_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, [*server(sockets=1, cores=2), RecordedCore(0, 10, ())])
    allow(monkeypatch, {0, 1})
    nodes = machine.nodes(tmp_path)
    assert [(node.number, node.cpus) for node in nodes] == [(0, (0, 1)), (10, ())]
    assert nodes[1].cores(machine.physical_cores(tmp_path)) == ()
