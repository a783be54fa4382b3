"""Cases that measure the machine's limits: memory bandwidth and peak arithmetic, with the benchmark's threads."""

import time
from itertools import cycle

from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Case
from surefoot.ops import Backend, huge_empty, peak, read_bandwidth
from surefoot.ops.backend import supported_variants
from surefoot.ops.probe import PeakKind

CHUNK_BYTES = 128 << 20
PEAK_SECONDS = 0.004


def gauges(backend: Backend, footprint_bytes: int) -> list[Case]:
    """Cases for the two limits that figures are compared with."""
    return [bandwidth_case(backend, footprint_bytes), peak_case(backend, INT8_PEAK, PeakKind.INT8)]


def other_peaks(backend: Backend) -> list[Case]:
    """Cases for other peaks (VNNI, floating point), for information."""
    cases = [peak_case(backend, "float32_peak", PeakKind.FLOAT)]
    if backend.variant == "amx":
        cases.append(peak_case(backend, "bf16_peak", PeakKind.BF16_MATRIX))
    if backend.variant != "avx512" and "avx512" in supported_variants():
        cases.append(peak_case(Backend("avx512", backend.threads), "vnni_peak", PeakKind.INT8))
    return cases


def bandwidth_case(backend: Backend, footprint_bytes: int) -> Case:
    """A case whose samples each read the next chunk of the footprint, so that no chunk is in the processor's cache."""
    buffer = huge_empty(footprint_bytes)
    buffer[::4096] = 1  # untouched pages would all map to the kernel's zero page
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
