"""Loads the model that a benchmark measures."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot.api import LLM
from surefoot.bench.harness.machine_facts import facts_of_run, machine_facts
from surefoot.bench.harness.model_results import describe_model
from surefoot.bench.harness.progress import Say
from surefoot.machine.cpu_usage import CpuUsage, usage


@dataclass(frozen=True)
class MeasuredModel:
    """A model that is ready to be measured."""

    llm: LLM
    described: dict[str, Any]  # facts about the model, for the report
    begin: float  # start of the run, after loading, by time.perf_counter
    _before: CpuUsage  # at the start of the run
    _facts: dict[str, Any]  # about the machine

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self.begin

    def run_facts(self) -> dict[str, Any]:
        """Facts about the machine and about other programs on it during the run."""
        return self._facts | facts_of_run(self._before, self.begin)


def load_model(path: str, load: Callable[[], LLM], say: Say) -> MeasuredModel:
    """Loads the model and freezes garbage collection over what exists now. load: opens the model."""
    say("loading")
    start = time.perf_counter()
    llm = load()
    described = describe_model(path, llm, time.perf_counter() - start)
    gc.collect()
    gc.freeze()
    return MeasuredModel(llm, described, time.perf_counter(), usage(), machine_facts(llm.backend))
