"""Facts that every benchmark reports: the machine, and what other programs did on it."""

import os
import platform
import time
from contextlib import closing
from typing import Any

from surefoot import __version__, machine
from surefoot.machine.cpu_usage import others_share, usage
from surefoot.ops import Backend


class RunFacts:
    """What is reported of a run that begins when this is made."""

    def __init__(self) -> None:
        self.begin, self._before, self._load = time.perf_counter(), usage(), os.getloadavg()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self.begin

    @property
    def others_share(self) -> float:
        """Of the processors' time, what other programs took since the run began."""
        return others_share(self._before, usage())

    def facts(self, backend: Backend | None = None) -> dict[str, Any]:
        """About the machine, and the run until now. backend: which ran; None: the best, elsewhere."""
        if backend is None:
            with closing(Backend()) as best:
                return self.facts(best)
        return _machine_facts(backend) | {
            "load_before": self._load,
            "load_after": os.getloadavg(),
            "others_cpu_share": self.others_share,
            "seconds": self.seconds,
        }


def _machine_facts(backend: Backend) -> dict[str, Any]:
    return {
        "cpu": machine.cpu_model(),
        "variant": backend.variant,
        "threads": backend.threads,
        "usable_cores": machine.usable_cores(),
        "memory_bytes": machine.memory().limit_bytes,
        "huge_pages": machine.huge_pages(),
        "python": platform.python_version(),
        "surefoot": __version__,
    }
