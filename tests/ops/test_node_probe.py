"""Bandwidth between nodes, with each processor of this machine as a node of its own."""

import os

from surefoot.machine import NumaNode, PhysicalCore
from surefoot.ops.node_probe import node_bandwidths

MIB = 1 << 20


def as_nodes(cpus: list[int]) -> tuple[tuple[NumaNode, ...], tuple[PhysicalCore, ...]]:
    nodes = tuple(NumaNode(n, (cpu,), 256 * MIB, (), memory_allowed=n > 0) for n, cpu in enumerate(cpus))
    return nodes, tuple(PhysicalCore((cpu,), 0, True) for cpu in cpus)


def test_cores_of_every_node_read_the_memory_that_is_allowed() -> None:
    allowed = os.sched_getaffinity(0)
    nodes, cores = as_nodes(sorted(allowed)[:2] * 2)
    told = node_bandwidths("portable", 4, nodes, cores, 8 * MIB)
    pairs = [(cores_node, memory_node) for cores_node in range(len(nodes)) for memory_node in range(1, len(nodes))]
    assert [(each.cores_node, each.memory_node) for each in told] == pairs
    assert all(each.read_bytes_per_second > 1e7 and each.threads >= 1 for each in told)
    assert os.sched_getaffinity(0) == allowed


def test_one_node_is_compared_with_nothing() -> None:
    assert node_bandwidths("portable", 4, *as_nodes([0]), 8 * MIB) == ()


def test_a_node_without_a_core_for_this_process_is_left_out() -> None:
    cpu = min(os.sched_getaffinity(0))
    nodes, cores = as_nodes([cpu + 1, cpu])
    (told,) = node_bandwidths("portable", 4, nodes, cores[1:], 8 * MIB)
    assert (told.cores_node, told.memory_node, told.threads) == (1, 1, 1)
