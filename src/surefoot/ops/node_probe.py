"""Measures how fast each NUMA node's cores read the memory of each node."""

import os
from dataclasses import dataclass

from surefoot.machine import NumaNode, PhysicalCore, Placement
from surefoot.machine.affinity import running_on
from surefoot.ops.arrays import HUGE_BYTES, U8, huge_empty
from surefoot.ops.backend import Backend
from surefoot.ops.probe import best_read_bandwidth, touch

SECONDS = 0.1  # for each pair of nodes: of eight nodes there are 64


@dataclass(frozen=True)
class NodeBandwidth:
    """How fast the cores of one NUMA node read the memory of one."""

    cores_node: int
    memory_node: int
    threads: int
    read_bytes_per_second: float


def node_bandwidths(
    variant: str, max_threads: int, nodes: tuple[NumaNode, ...], cores: tuple[PhysicalCore, ...], nbytes: int
) -> tuple[NodeBandwidth, ...]:
    """The bandwidth between every two nodes; empty where there is one. Nodes without a core for this process are left
    out, and memory that it may not use. nbytes: read at once, of each node."""
    if len(nodes) < 2:
        return ()
    cpus = {node: [cpu for core in node.cores(cores) for cpu in core.cpus] for node in nodes if node.cores(cores)}
    measured = []
    for memory_node in filter(lambda node: node.memory_allowed, cpus):
        buffer = _memory_of(cpus[memory_node], min(nbytes, memory_node.memory_bytes // 8))
        for node, its_cpus in cpus.items():
            threads = min(max_threads, len(node.cores(cores)))
            with running_on(its_cpus):
                backend = Backend(variant, threads)
                speed = best_read_bandwidth(backend, buffer, SECONDS)
                backend.close()
            measured.append(NodeBandwidth(node.number, memory_node.number, threads, speed))
    return tuple(sorted(measured, key=lambda pair: (pair.cores_node, pair.memory_node)))


def _memory_of(cpus: list[int], nbytes: int) -> U8:
    """Bytes on the node of these processors, unless that is full: a page lies near the processor that touches it."""
    buffer = huge_empty(nbytes)
    with running_on(cpus):
        touch(buffer)
    return buffer


def placing_error(placement: Placement) -> str:
    """Why the system refuses to take memory from the nodes that it is asked for; empty if it does not."""
    backend, buffer = Backend("portable", sum(share.threads for share in placement.shares), placement), huge_empty(1)
    backend.pages.spread(buffer.ctypes.data, HUGE_BYTES)
    backend.close()
    return os.strerror(backend.pages.error) if backend.pages.error else ""
