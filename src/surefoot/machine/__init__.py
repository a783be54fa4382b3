"""What this process may use of the machine: cores, memory, NUMA nodes. Standard library only."""

from surefoot.machine.cgroups import throttled_s
from surefoot.machine.limits import Cores, Memory, cores, free_addresses, memory, usable_cores, used_bytes
from surefoot.machine.placement import NodeShare, Placement, choose_placement
from surefoot.machine.topology import (
    NumaNode,
    PhysicalCore,
    architecture,
    cpu_model,
    huge_pages,
    nodes,
    physical_cores,
)

__all__ = [
    "Cores",
    "Memory",
    "NodeShare",
    "NumaNode",
    "PhysicalCore",
    "Placement",
    "architecture",
    "choose_placement",
    "cores",
    "cpu_model",
    "free_addresses",
    "huge_pages",
    "memory",
    "nodes",
    "physical_cores",
    "throttled_s",
    "usable_cores",
    "used_bytes",
]
