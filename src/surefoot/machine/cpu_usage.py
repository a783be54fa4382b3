"""Processor time: how much other programs used, and how much one process may use."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC_STAT = Path("/proc/stat")
MAX_OTHERS_SHARE = 0.05  # up to this share of other programs, a run's ratios can be trusted
PATIENCE = 30.0  # times the allowance, in seconds of the wall: for a process that waits instead of working


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


class CpuAllowance:
    """Processor time that another process may use from now on, for one piece of work."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._until = cpu_seconds(pid) + seconds
        self._give_up = time.monotonic() + PATIENCE * seconds

    def wait_s(self) -> float:
        """Seconds to wait before asking again; less cannot use up the allowance. Raises TimeoutError if it is used up,
        and ProcessLookupError if the process is gone."""
        left = min(self._until - cpu_seconds(self._pid), self._give_up - time.monotonic())
        if left <= 0:
            raise TimeoutError
        return left


def cpu_seconds(pid: int) -> float:
    """Processor time that all threads of a process have used. Raises ProcessLookupError if there is no such process."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # Linux's number for the CPU clock of a process
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error
