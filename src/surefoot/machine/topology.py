"""Hardware topology: processor, NUMA nodes, huge pages."""

import platform
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.apple import mac
from surefoot.machine.files import ROOT, parse_cpu_list, read_table, read_text

# ARM's kernel gives numbers instead of a name: implementer and part of /proc/cpuinfo.
_ARM_CORES = {
    ("0x41", "0xd05"): "Cortex-A55", ("0x41", "0xd08"): "Cortex-A72", ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse N1", ("0x41", "0xd40"): "Neoverse V1", ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2", ("0xc0", "0xac3"): "Ampere-1",
}  # fmt: skip


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node: its processors reach its memory faster than that of other nodes."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int


def architecture() -> str:
    """The kind of processor, by Linux's names: x86_64, aarch64."""
    machine = platform.machine()
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def cpu_model(root: Path = ROOT) -> str:
    if sys.platform == "darwin":
        return mac().model
    known = read_table(root / "proc/cpuinfo").get("model name") or _arm_cores(read_text(root / "proc/cpuinfo"))
    return known or platform.processor() or platform.machine()


def _arm_cores(cpuinfo: str) -> str:
    """The kinds of cores that ARM's /proc/cpuinfo lists, with their numbers where there are several (big.LITTLE)."""
    cores = re.findall(r"CPU implementer\s*: (\w+).*?CPU part\s*: (\w+)", cpuinfo, re.DOTALL)
    names = Counter(_ARM_CORES.get(core, f"ARM core {core[0]}/{core[1]}") for core in cores)
    return ", ".join(f"{count} x {name}" if len(names) > 1 else name for name, count in names.items())


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
