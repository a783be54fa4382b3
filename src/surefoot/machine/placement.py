"""Which NUMA nodes the threads of a pool belong to, and why they may belong to none."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.cgroups import cpu_quota
from surefoot.machine.files import ROOT
from surefoot.machine.topology import NumaNode, PhysicalCore, nodes, physical_cores


@dataclass(frozen=True)
class NodeShare:
    """The threads of one NUMA node. They run on its processors, and its memory holds what they read."""

    node: int  # as the kernel numbers it
    cpus: tuple[int, ...]  # its processors, as far as this process may run on them
    threads: int


@dataclass(frozen=True)
class Placement:
    """How a pool's threads belong to NUMA nodes."""

    shares: tuple[NodeShare, ...] = ()  # empty: threads and pages are where the system puts them
    reason: str = ""  # why there are no shares

    def node_of_thread(self) -> list[int]:
        """The index of each thread's share, evenly mixed: the first threads alone are spread over the nodes too."""
        places = [
            ((thread + 0.5) / share.threads, index)
            for index, share in enumerate(self.shares)
            for thread in range(share.threads)
        ]
        return [index for _, index in sorted(places)]


def choose_placement(threads: int, root: Path = ROOT) -> Placement:
    """Threads on each node in proportion to its physical cores that this process may use. Nowhere in particular if one
    node has them all, or if the system moves threads or memory between nodes."""
    all_nodes = nodes(root)
    if len(all_nodes) < 2:
        return Placement(reason="the machine has one NUMA node")
    cores = physical_cores(root)
    usable = [node for node in all_nodes if node.cores(cores)]
    if reason := _reason(threads, cores, usable, cpu_quota(root)):
        return Placement(reason=reason)
    counts = _in_proportion(threads, [len(node.cores(cores)) for node in usable])
    return Placement(
        tuple(
            NodeShare(node.number, tuple(sorted(cpu for core in node.cores(cores) for cpu in core.cpus)), count)
            for node, count in zip(usable, counts, strict=True)
            if count
        )
    )


def _reason(threads: int, cores: Sequence[PhysicalCore], usable: Sequence[NumaNode], quota: float | None) -> str:
    """Why threads belong to no node; empty if they can."""
    if len(usable) < 2:
        return "all processors that this process may use are of one NUMA node"
    if quota is not None and quota < len(cores):
        return (
            f"a CPU quota of {quota:g} cores is less than the {len(cores)} cores, which others use: the system must "
            "be free to move threads to idle cores"
        )
    if missing := [str(node.number) for node in usable if not node.memory_allowed or not node.memory_bytes]:
        return f"this process may use processors of node {', '.join(missing)}, but none of its memory"
    return "one thread" if threads < 2 else ""


def _in_proportion(count: int, sizes: Sequence[int]) -> list[int]:
    """Parts of the count in proportion to the sizes, by largest remainder."""
    total = sum(sizes)
    parts = [count * size // total for size in sizes]
    by_rest = sorted(range(len(sizes)), key=lambda number: -(count * sizes[number] % total))
    for number in by_rest[: count - sum(parts)]:
        parts[number] += 1
    return parts
