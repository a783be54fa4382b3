"""What a benchmark of a loaded model ends with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.api import LLM
from surefoot.bench.figures import Figure, Measurements


@dataclass(frozen=True)
class ModelResults:
    measurements: Measurements
    figures: list[Figure]
    model: dict[str, Any]
    peers: dict[str, dict[str, Any]]
    absent: dict[str, str]
    machine: dict[str, Any]


def describe_model(path: str, llm: LLM, load_seconds: float) -> dict[str, Any]:
    return {
        "path": Path(path).name,
        "family": llm.config.family,
        "layers": len(llm.config.layers),
        "width": llm.config.width,
        "load_seconds": load_seconds,
    }
