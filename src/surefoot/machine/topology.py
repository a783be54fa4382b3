"""Hardware topology: processor, physical cores, NUMA nodes, huge pages."""

import os
import platform
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.apple import mac
from surefoot.machine.files import ROOT, parse_cpu_list, read_int, read_table, read_text

# ARM's kernel gives numbers instead of a name: implementer and part of /proc/cpuinfo.
_ARM_CORES = {
    ("0x41", "0xd05"): "Cortex-A55", ("0x41", "0xd08"): "Cortex-A72", ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse N1", ("0x41", "0xd40"): "Neoverse V1", ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2", ("0xc0", "0xac3"): "Ampere-1",
}  # fmt: skip
_SLOW_PART = 0.8  # of the fastest core's rate: favoured cores differ by less from their kind, efficiency cores by more


@dataclass(frozen=True)
class PhysicalCore:
    """A physical core that this process may use. Its hardware threads share its arithmetic and its caches."""

    cpus: tuple[int, ...]  # its hardware threads, as far as this process may run on them
    socket: int
    is_fast: bool  # False: an efficiency core, where this process may use faster ones too


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node: its processors reach its memory faster than that of other nodes."""

    number: int
    cpus: tuple[int, ...]  # of the machine, allowed or not; none where a node is only memory
    memory_bytes: int
    distances: tuple[int, ...]  # of the memory of each node, in the order of `nodes`, by the firmware; 10 is its own
    memory_allowed: bool  # whether this process may have pages there

    def cores(self, cores: tuple[PhysicalCore, ...]) -> tuple[PhysicalCore, ...]:
        """Those of the cores that belong to this node."""
        return tuple(core for core in cores if core.cpus[0] in self.cpus)


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


def _fast_cpus(root: Path, cpus: set[int]) -> set[int]:
    """The processors that are not markedly slower than the others."""
    if listed := cpus & set(parse_cpu_list(read_text(root / "sys/devices/cpu_core/cpus"))):  # hybrids of Intel
        return listed
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        rates = {cpu: read_int(root / f"sys/devices/system/cpu/cpu{cpu}/{name}") or 0 for cpu in cpus}
        fast = {cpu for cpu, rate in rates.items() if rate >= _SLOW_PART * max(rates.values())}
        if fast != cpus:
            return fast
    return cpus


def physical_cores(root: Path = ROOT) -> tuple[PhysicalCore, ...]:
    """The cores that affinity and cpuset allow to this process, by their first processor."""
    if sys.platform == "darwin":
        return ()
    allowed = os.sched_getaffinity(0)
    fast, members = _fast_cpus(root, allowed), dict[str, list[int]]()
    for cpu in sorted(allowed):
        siblings = read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        members.setdefault(siblings or str(cpu), []).append(cpu)
    package = "sys/devices/system/cpu/cpu{}/topology/physical_package_id"
    return tuple(
        PhysicalCore(tuple(cpus), read_int(root / package.format(cpus[0])) or 0, cpus[0] in fast)
        for cpus in members.values()
    )


def _node(folder: Path, allowed_memory: str) -> NumaNode:
    number = int(folder.name.removeprefix("node"))
    total = re.search(r"MemTotal:\s+(\d+) kB", read_text(folder / "meminfo"))
    return NumaNode(
        number,
        cpus=parse_cpu_list(read_text(folder / "cpulist")),
        memory_bytes=int(total[1]) * 1024 if total else 0,
        distances=tuple(map(int, read_text(folder / "distance").split())),
        memory_allowed=not allowed_memory or number in parse_cpu_list(allowed_memory),
    )


def nodes(root: Path = ROOT) -> tuple[NumaNode, ...]:
    """The NUMA nodes by number; none where the kernel was built without them."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    allowed_memory = read_table(root / "proc/self/status").get("Mems_allowed_list", "")
    return tuple(sorted((_node(folder, allowed_memory) for folder in folders), key=lambda node: node.number))


def huge_pages(root: Path = ROOT) -> str:
    """The system's setting for transparent huge pages: always, madvise, never; or unknown."""
    chosen = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return chosen[1] if chosen else "unknown"
