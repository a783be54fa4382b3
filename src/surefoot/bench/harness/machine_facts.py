"""Facts that every benchmark reports: the machine, and what other programs did on it."""

import os
import platform
import time
from typing import Any

from surefoot import __version__, machine
from surefoot.machine.cpu_usage import CpuUsage, others_share, usage
from surefoot.ops import Backend


def machine_facts(backend: Backend) -> dict[str, Any]:
    return {
        "cpu": machine.cpu_model(),
        "variant": backend.variant,
        "threads": backend.threads,
        "usable_cores": machine.usable_cores(),
        "memory_bytes": machine.memory().limit_bytes,
        "huge_pages": machine.huge_pages(),
        "load_before": os.getloadavg(),
        "python": platform.python_version(),
        "surefoot": __version__,
    }


def facts_of_run(before: CpuUsage, start: float) -> dict[str, Any]:
    """Facts about a run that began at `start`, when processor usage was `before`."""
    return {
        "load_after": os.getloadavg(),
        "others_cpu_share": others_share(before, usage()),
        "seconds": time.perf_counter() - start,
    }
