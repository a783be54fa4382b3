"""Measures how much processor time other programs used."""

import os
from dataclasses import dataclass
from pathlib import Path

PROC_STAT = Path("/proc/stat")
MAX_OTHERS_SHARE = 0.05  # up to this share of other programs, a run's ratios can be trusted


@dataclass(frozen=True)
class CpuUsage:
    """Seconds of processor time since boot, over the processors that this process may use."""

    all_seconds: float
    busy_seconds: float  # not idle
    own_seconds: float  # of this process and of its children that have ended


def usage(stat: Path = PROC_STAT) -> CpuUsage:
    """The usage from boot until now; where the system does not say, others use nothing."""
    own = sum(os.times()[:4])
    if not stat.exists():
        return CpuUsage(0.0, 0.0, own)
    ours = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    ticks = [line.split() for line in stat.read_text().splitlines()]
    # user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user
    times = [[int(tick) for tick in line[1:9]] for line in ticks if line and line[0] in ours]
    hertz = os.sysconf("SC_CLK_TCK")
    everything = sum(map(sum, times)) / hertz
    idle = sum(line[3] + line[4] for line in times) / hertz
    return CpuUsage(everything, everything - idle, own)


def others_share(before: CpuUsage, after: CpuUsage) -> float:
    """Share of processor time between two readings that other programs used."""
    total = after.all_seconds - before.all_seconds
    others = (after.busy_seconds - before.busy_seconds) - (after.own_seconds - before.own_seconds)
    return max(0.0, others / total) if total > 0 else 0.0
