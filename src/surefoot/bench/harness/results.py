"""What every benchmark returns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.api import LLM
from surefoot.bench.harness.figures import Figure, Measurements


@dataclass(frozen=True)
class BenchResults:
    """Everything that a benchmark reports."""

    measurements: Measurements
    figures: list[Figure]
    model: dict[str, Any]  # facts about the model, and details of the subject
    peers: dict[str, dict[str, Any]]  # facts about each peer that took part
    absent: dict[str, str]  # why a peer did not take part
    machine: dict[str, Any]  # facts about the machine and the run


def describe_model(path: str, llm: LLM, load_seconds: float) -> dict[str, Any]:
    return {
        "path": Path(path).name,
        "family": llm.config.family,
        "layers": len(llm.config.layers),
        "width": llm.config.width,
        "load_seconds": load_seconds,
    }
