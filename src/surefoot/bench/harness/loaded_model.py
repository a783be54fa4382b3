"""Loads the model that a benchmark measures, and says on what machine and within which limits."""

import gc
import os
import platform
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from surefoot import __version__, machine
from surefoot.api import LLM
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import describe_model
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Case
from surefoot.machine.cpu_usage import others_share, usage
from surefoot.ops import Backend, bandwidth_buffer, peak, read_bandwidth
from surefoot.ops.probe import PeakKind

CHUNK_BYTES = 128 << 20
PEAK_SECONDS = 0.004


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


@dataclass(frozen=True)
class MeasuredModel:
    """A model that is ready to be measured."""

    llm: LLM
    described: dict[str, Any]  # facts about the model, for the report
    run: RunFacts  # since the model was loaded


def load_model(path: str, load: Callable[[], LLM], say: Say) -> MeasuredModel:
    """Loads the model and freezes garbage collection over what exists now. load: opens the model."""
    say("loading")
    start = time.perf_counter()
    llm = load()
    described = describe_model(path, llm.config, time.perf_counter() - start)
    gc.collect()
    gc.freeze()
    return MeasuredModel(llm, described, RunFacts())


def gauges(backend: Backend, footprint_bytes: int) -> list[Case]:
    """Cases for the two limits that figures are compared with."""
    return [bandwidth_case(backend, footprint_bytes), peak_case(backend, INT8_PEAK, PeakKind.INT8)]


def bandwidth_case(backend: Backend, footprint_bytes: int) -> Case:
    """A case whose samples each read the next chunk of the footprint, so that no chunk is in the processor's cache."""
    buffer = bandwidth_buffer(backend, footprint_bytes)
    size = min(CHUNK_BYTES, footprint_bytes)
    chunks = cycle([buffer[start : start + size] for start in range(0, footprint_bytes - size + 1, size)])
    return Case(BANDWIDTH, "limit", lambda: size / read_bandwidth(backend, next(chunks)), bytes=size)


def peak_case(backend: Backend, name: str, kind: PeakKind) -> Case:
    """A case that runs a loop over registers. One call counts as one operation at the peak rate."""
    iterations, seconds = 1000, 0.0
    while seconds < PEAK_SECONDS:
        iterations *= 2
        start = time.perf_counter()
        peak(backend, kind, iterations)
        seconds = time.perf_counter() - start
    return Case(name, "limit", lambda: 1 / peak(backend, kind, iterations), operations=1)
