"""Loads the model that a benchmark measures."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot.api import LLM
from surefoot.bench.harness.machine_facts import RunFacts
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import describe_model


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
    described = describe_model(path, llm, time.perf_counter() - start)
    gc.collect()
    gc.freeze()
    return MeasuredModel(llm, described, RunFacts())
