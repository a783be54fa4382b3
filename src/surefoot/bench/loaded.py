"""A loaded model: what a benchmark of one begins with."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot.api import LLM
from surefoot.bench.disturbance import Usage, usage
from surefoot.bench.facts import facts_of_run, machine_facts
from surefoot.bench.model_results import describe_model


@dataclass(frozen=True)
class Loaded:
    """begin: when it was there, by time.perf_counter: the run counts from then on."""

    llm: LLM
    described: dict[str, Any]
    begin: float
    _before: Usage
    _facts: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Of the run, so far."""
        return time.perf_counter() - self.begin

    def run_facts(self) -> dict[str, Any]:
        """Of the machine, with what else went on there up to now."""
        return self._facts | facts_of_run(self._before, self.begin)


def load_model(path: str, load: Callable[[], LLM], say: Callable[[str], None]) -> Loaded:
    """What is there now is not searched for garbage any more."""
    say("loading")
    start = time.perf_counter()
    llm = load()
    described = describe_model(path, llm, time.perf_counter() - start)
    gc.collect()
    gc.freeze()
    return Loaded(llm, described, time.perf_counter(), usage(), machine_facts(llm.backend))
