"""Hardware topology: processor, NUMA nodes, huge pages."""

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.files import ROOT, parse_cpu_list, read_table, read_text


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node: its processors reach its memory faster than that of other nodes."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int


def cpu_model(root: Path = ROOT) -> str:
    table = read_table(root / "proc/cpuinfo")
    return table.get("model name") or platform.processor() or platform.machine()


def _node(folder: Path) -> NumaNode:
    total = re.search(r"MemTotal:\s+(\d+) kB", read_text(folder / "meminfo"))
    memory_bytes = int(total[1]) * 1024 if total else 0
    return NumaNode(int(folder.name.removeprefix("node")), parse_cpu_list(read_text(folder / "cpulist")), memory_bytes)


def nodes(root: Path = ROOT) -> tuple[NumaNode, ...]:
    """The NUMA nodes by number; none where the kernel was built without them."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    return tuple(sorted(map(_node, folders), key=lambda node: node.number))


def huge_pages(root: Path = ROOT) -> str:
    """The system's setting for transparent huge pages: always, madvise, never; or unknown."""
    chosen = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return chosen[1] if chosen else "unknown"
