"""Measures the curves of `speed/efficiency/VARIANT.json`: what a variant's kernels reach, for all forms."""

from datetime import UTC, datetime
from typing import Any

from surefoot import machine
from surefoot.bench.harness.progress import Say
from surefoot.ops import Backend, WeightFormat
from surefoot.speed.measure_rates import AttentionShape, LinearShape, measure_rates
from surefoot.speed.shipped_rates import efficiency_as_json

N, K = 4096, 2048
# Weights, and limbs of the inputs: every form that files and folders become.
FORMS = (
    (WeightFormat(4, 2, 32), 2),
    (WeightFormat(8, 2, 32), 2),
    (WeightFormat(8, 2, 16), 2),
    (WeightFormat(4, 2, 16), 2),
    (WeightFormat(8, 1, 0), 2),
    (WeightFormat(8, 1, 0), 1),
    (WeightFormat(4, 1, 32), 2),
)
HEADS = AttentionShape(32, 8, 64, 64)
DIGITS = 4  # that are kept


def run_rates(variant: str | None, threads: int, seconds: float, say: Say) -> dict[str, Any]:
    """The file's content, and the machine's limits."""
    backend = Backend(variant, threads)
    say(f"{backend.variant}: {seconds:g} s")
    try:
        rates = measure_rates(backend, [LinearShape(fmt, limbs, N, K) for fmt, limbs in FORMS], HEADS, seconds)
    finally:
        backend.close()
    source = (
        f"measured with {threads} thread{'s' * (threads > 1)} on {machine.cpu_model()}, variant {backend.variant}, "
        f"{rates.read_bytes_per_second / 1e9:.1f} GB/s, {rates.int8_operations_per_second / 1e9:.0f} billion int8 "
        f"operations a second, {datetime.now(UTC):%Y-%m-%d}"
    )
    rounded: dict[str, Any] = _rounded(efficiency_as_json(rates.efficiency, source))
    return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
