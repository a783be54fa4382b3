"""What every benchmark returns, and its form in JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.bench.harness.figures import Figure, Measurements
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Measurement, share
from surefoot.models import ModelConfig


@dataclass(frozen=True)
class BenchResults:
    """Everything that a benchmark reports."""

    measurements: Measurements
    figures: list[Figure]
    model: dict[str, Any]  # facts about the model, and details of the subject
    peers: dict[str, dict[str, Any]]  # facts about each peer that took part
    absent: dict[str, str]  # why a peer did not take part
    machine: dict[str, Any]  # facts about the machine and the run


def describe_model(path: str, config: ModelConfig, load_seconds: float) -> dict[str, Any]:
    return {
        "path": Path(path).name,
        "family": config.family,
        "layers": len(config.layers),
        "width": config.width,
        "load_seconds": load_seconds,
    }


def as_json(results: BenchResults) -> dict[str, Any]:
    return {
        "figures": {figure.name: figure.value for figure in results.figures},
        "samples": {figure.name: figure.samples for figure in results.figures if figure.samples},
        "targets": {
            f.name: {"bound": f.target.bound, "at_least": f.target.at_least, "met": f.met}
            for f in results.figures
            if f.target
        },
        "reasons": {figure.name: figure.reason for figure in results.figures if figure.reason},
        "limits": {m.case.name: _limit(m) for m in results.measurements.values() if m.case.kind == "limit"},
        "cases": [_case(m) for m in results.measurements.values() if m.case.kind != "limit"],
        "peers": results.peers,
        "absent_peers": results.absent,
        "machine": results.machine,
        "model": results.model,
    }


def _limit(measurement: Measurement) -> dict[str, Any]:
    """A limit of the machine as a rate, in bytes or operations per second."""
    case = measurement.case
    amount = case.bytes or case.operations
    best, median = measurement.best, measurement.median
    return {
        "unit": "bytes/s" if case.bytes else "operations/s",
        "best": amount / best if best else None,
        "median": amount / median if median else None,
        "samples": len(measurement.samples),
    }


def _case(measurement: Measurement) -> dict[str, Any]:
    """A case with its times per call."""
    case, median = measurement.case, measurement.median
    row = {
        "name": case.name,
        "kind": case.kind,
        "engine": case.engine,
        **case.labels,
        "bytes": case.bytes,
        "operations": case.operations,
        "calls_per_sample": case.calls,
        "samples": len(measurement.samples),
        "best_seconds": measurement.best,
        "median_seconds": median,
    }
    if median:
        row["bytes_per_second"] = case.bytes / median
        row["operations_per_second"] = case.operations / median
    if median and measurement.samples[0].limits:
        row["of_bandwidth"] = share([measurement], BANDWIDTH)
        row["of_int8_peak"] = share([measurement], INT8_PEAK)
    return row
