"""Cores and memory as affinity and cgroups allow them, not as the host has them."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.cgroups import cpu_quota, memory_limit_bytes
from surefoot.machine.files import ROOT, read_table, read_text


@dataclass(frozen=True)
class Cores:
    """What decides how many threads are worth starting."""

    online: int  # logical processors of the machine
    allowed: int  # of these, the ones that this process may run on
    physical: int  # cores behind the allowed ones: two hyper-threads share one core's arithmetic and caches
    quota: float | None  # cores' worth of time that the cgroups grant

    @property
    def usable(self) -> int:
        """Cores that can be kept busy. Part of a core is rounded down: a thread that waits for the next period holds
        up all the others."""
        return max(1, min(self.physical, int(self.quota) if self.quota is not None else self.physical))


@dataclass(frozen=True)
class Memory:
    total_bytes: int
    cgroup_bytes: int | None

    @property
    def limit_bytes(self) -> int:
        return min(self.total_bytes, self.cgroup_bytes or self.total_bytes)


def _num_physical(root: Path, cpus: set[int]) -> int:
    """Distinct cores among the processors; one each where the machine does not tell."""
    folder = root / "sys/devices/system/cpu"
    siblings = {cpu: read_text(folder / f"cpu{cpu}/topology/thread_siblings_list") for cpu in cpus}
    return len({known or str(cpu) for cpu, known in siblings.items()})


def cores(root: Path = ROOT) -> Cores:
    allowed = os.sched_getaffinity(0)
    return Cores(os.cpu_count() or len(allowed), len(allowed), _num_physical(root, allowed), cpu_quota(root))


def memory(root: Path = ROOT) -> Memory:
    total_kib, _, _ = read_table(root / "proc/meminfo").get("MemTotal", "0 kB").partition(" ")
    return Memory(int(total_kib) * 1024, memory_limit_bytes(root))


def used_bytes(root: Path = ROOT) -> int:
    """Memory that this process holds for itself: pages of mapped files can be dropped, so they do not count."""
    kib, _, _ = read_table(root / "proc/self/status").get("RssAnon", "0 kB").partition(" ")
    return int(kib) * 1024


def free_addresses(root: Path = ROOT) -> int | None:
    """Bytes of addresses that this process may still map (`ulimit -v`); None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    kib, _, _ = read_table(root / "proc/self/status").get("VmSize", "0 kB").partition(" ")
    return max(0, limit - int(kib) * 1024)


def usable_cores(root: Path = ROOT) -> int:
    """Cores this process may keep busy: the fewest of its affinity, its physical cores and its cgroup quota."""
    return cores(root).usable
