"""Cores and memory that affinity and cgroups allow, which may be less than the host has."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.apple import mac
from surefoot.machine.cgroups import cpu_quota, memory_limit_bytes
from surefoot.machine.files import ROOT, read_table
from surefoot.machine.topology import physical_cores


@dataclass(frozen=True)
class Cores:
    """Processors that limit the number of useful threads."""

    online: int  # logical processors of the machine
    allowed: int  # logical processors that this process may run on
    physical: int  # physical cores of the allowed processors: two hyper-threads share arithmetic and caches
    quota: float | None  # CPU time that cgroups grant, in cores; None: no quota

    @property
    def usable(self) -> int:
        """Cores that can be kept busy. A quota is rounded down, since a throttled thread would hold up all others."""
        return max(1, min(self.physical, int(self.quota) if self.quota is not None else self.physical))


@dataclass(frozen=True)
class Memory:
    """Memory of the machine and its limit."""

    total_bytes: int  # of the machine
    cgroup_bytes: int | None  # the tightest cgroup limit; None: no limit

    @property
    def limit_bytes(self) -> int:
        return min(self.total_bytes, self.cgroup_bytes or self.total_bytes)


def cores(root: Path = ROOT) -> Cores:
    if sys.platform == "darwin":
        online = os.cpu_count() or 1
        return Cores(online, online, mac().fast_cores or online, None)
    allowed = os.sched_getaffinity(0)
    return Cores(os.cpu_count() or len(allowed), len(allowed), len(physical_cores(root)), cpu_quota(root))


def memory(root: Path = ROOT) -> Memory:
    if sys.platform == "darwin":
        return Memory(mac().memory_bytes, None)
    total_kib, _, _ = read_table(root / "proc/meminfo").get("MemTotal", "0 kB").partition(" ")
    return Memory(int(total_kib) * 1024, memory_limit_bytes(root))


def used_bytes(root: Path = ROOT) -> int:
    """Anonymous memory of this process. Pages of mapped files do not count, since the kernel can drop them."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes there: the most it has been
    kib, _, _ = read_table(root / "proc/self/status").get("RssAnon", "0 kB").partition(" ")
    return int(kib) * 1024


def free_addresses(root: Path = ROOT) -> int | None:
    """Bytes of address space that this process may still map (`ulimit -v`); None: no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    kib, _, _ = read_table(root / "proc/self/status").get("VmSize", "0 kB").partition(" ")
    return max(0, limit - int(kib) * 1024)


def usable_cores(root: Path = ROOT) -> int:
    """Cores that this process can keep busy: the least of its affinity, physical cores and cgroup quota."""
    return cores(root).usable
