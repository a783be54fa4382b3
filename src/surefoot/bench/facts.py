"""What every benchmark tells beside its figures: the machine, and what else went on there."""

import os
import platform
import time
from typing import Any

from surefoot import __version__, machine
from surefoot.bench.disturbance import Usage, others_share, usage
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


def facts_of_run(before: Usage, start: float) -> dict[str, Any]:
    """before: what was used at the time `start`."""
    return {
        "load_after": os.getloadavg(),
        "others_cpu_share": others_share(before, usage()),
        "seconds": time.perf_counter() - start,
    }


def progress(number: int, done: int, total: int) -> str:
    return f"{'warming up' if number == 0 else f'round {number}'}: {done} of {total} cases"
