"""How much other programs were at work on our processors during a run."""

import os
from dataclasses import dataclass
from pathlib import Path

PROC_STAT = Path("/proc/stat")
MOST = 0.05  # beyond this a run's ratios are not to be trusted


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time since boot: on the processors that we may use, and by us."""

    all_seconds: float
    busy_seconds: float
    own_seconds: float


def usage(stat: Path = PROC_STAT) -> Usage:
    """Our own part counts children only once they have ended."""
    ours = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    ticks = [line.split() for line in stat.read_text().splitlines()]
    # user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user
    times = [[int(tick) for tick in line[1:9]] for line in ticks if line and line[0] in ours]
    hertz = os.sysconf("SC_CLK_TCK")
    everything = sum(map(sum, times)) / hertz
    idle = sum(line[3] + line[4] for line in times) / hertz
    return Usage(everything, everything - idle, sum(os.times()[:4]))


def others_share(before: Usage, after: Usage) -> float:
    """The share of the processors that neither stood idle nor worked for us."""
    total = after.all_seconds - before.all_seconds
    others = (after.busy_seconds - before.busy_seconds) - (after.own_seconds - before.own_seconds)
    return max(0.0, others / total) if total > 0 else 0.0
