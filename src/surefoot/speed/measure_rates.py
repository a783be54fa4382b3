"""Measures what the machine's kernels reach, in a few seconds: `MachineRates`.

Cases take turns, and the best time of each counts: other programs can only make a case slower.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from surefoot.ops.activations import ActivationForm, empty_activations, quantise
from surefoot.ops.arrays import F32, empty
from surefoot.ops.attention import Chunks, attention
from surefoot.ops.backend import Backend
from surefoot.ops.kv import empty_kv_cache, kv_write
from surefoot.ops.linear import linear
from surefoot.ops.norms import NormForm, norm
from surefoot.ops.probe import PeakKind, bandwidth_buffer, peak, read_bandwidth
from surefoot.ops.random_weights import copies_of, random_weights
from surefoot.ops.weights import PackedWeights, WeightFormat, pack, packed_bytes
from surefoot.speed.rates import (
    Efficiency,
    EfficiencyCurve,
    MachineRates,
    arithmetic_part,
    form_name,
    limb_operations,
    make_curve,
)

ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512)
MANY_ROWS = 16  # fewer reach no more of the peak: where memory hides their arithmetic, it seems to take no time
CHUNK_ROWS = (1, 4, 16, 64, 256)  # of attention
CONTEXT = 2048  # tokens that attention is measured over
BLOCK_SIZE = 16
MAX_WEIGHTS = 1 << 23  # of a matrix that is measured: time grows in proportion beyond; 2^21 reach 0.9 of it
SAMPLE_BYTES = 64 << 20  # of copies that a sample reads, at most
SAMPLE_WEIGHTS = 1 << 26  # weights times rows of a sample: some milliseconds
BUFFER_BYTES = 256 << 20
PEAK_ITERATIONS = 20_000
ELEMENT_ROWS = 64
STEP_S, ROW_S = 3e-4, 2e-5  # of Python: assumed, not measured


@dataclass(frozen=True)
class LinearShape:
    """A matrix to be measured."""

    format: WeightFormat
    limbs: int  # of its inputs
    n: int
    k: int

    @property
    def name(self) -> str:
        return form_name(self.format, self.limbs)

    @property
    def measured_outputs(self) -> int:
        """Whole panels of 32, no more than the time of a sample allows."""
        return max(32, min(self.n, MAX_WEIGHTS // self.k) // 32 * 32)


@dataclass(frozen=True)
class AttentionShape:
    """Heads of attention to be measured."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass
class _BestTime:
    """A case and its best time."""

    run: Callable[[], float]  # returns seconds
    best: float = float("inf")

    def sample(self) -> None:
        self.best = min(self.best, self.run())


def measure_rates(
    backend: Backend, shapes: Sequence[LinearShape], heads: AttentionShape, seconds: float = 12.0
) -> MachineRates:
    """shapes: one for each form."""
    linears = {(shape, rows): timing for shape in shapes for rows, timing in _linear_timings(backend, shape)}
    attentions = {rows: _attention_timing(backend, heads, rows) for rows in CHUNK_ROWS}
    bandwidth, rate = _limits(backend)
    small, large = (_norm_timing(backend, rows, shapes[0].k) for rows in (1, ELEMENT_ROWS))
    _take_turns([*linears.values(), *attentions.values(), bandwidth, rate, small, large], seconds)
    read, operations = BUFFER_BYTES / bandwidth.best, 1 / rate.best
    kernels = Efficiency(
        linear={shape.name: _linear_curve(shape, linears, read, operations) for shape in shapes},
        attention=_attention_curve(heads, attentions, operations),
        operations_per_element=(large.best - small.best) * operations / ((ELEMENT_ROWS - 1) * shapes[0].k),
        call_s=small.best,
        step_s=STEP_S,
        row_s=ROW_S,
    )
    return MachineRates(backend.variant, backend.threads, read, operations, kernels)


def _take_turns(timings: Sequence[_BestTime], seconds: float) -> None:
    end, done = time.monotonic() + seconds, False
    while not done:
        for timing in timings:
            timing.sample()
        done = time.monotonic() > end


def _limits(backend: Backend) -> tuple[_BestTime, _BestTime]:
    """Reading the buffer, and one operation at the peak."""
    buffer = bandwidth_buffer(backend, BUFFER_BYTES)
    return (
        _BestTime(lambda: _timed(lambda: read_bandwidth(backend, buffer))),
        _BestTime(lambda: 1 / peak(backend, PeakKind.INT8, PEAK_ITERATIONS)),
    )


def _linear_timings(backend: Backend, shape: LinearShape) -> Iterator[tuple[int, _BestTime]]:
    """Seconds of a product, by rows. Each number of rows reads copies of its own: those of the sample before it would
    still be in the cache."""
    packed = pack(backend, random_weights(shape.measured_outputs, shape.k, shape.format))
    counts = {rows: _num_copies(packed, rows) for rows in ROWS}
    copies = iter(copies_of(backend, packed, sum(counts.values())))
    for rows, count in counts.items():
        yield rows, _linear_timing(backend, [*islice(copies, count)], rows, ActivationForm(shape.limbs))


def _num_copies(matrix: PackedWeights, rows: int) -> int:
    return max(1, min(SAMPLE_BYTES // matrix.nbytes, SAMPLE_WEIGHTS // (matrix.n * matrix.k * rows)))


def _linear_timing(backend: Backend, copies: Sequence[PackedWeights], rows: int, form: ActivationForm) -> _BestTime:
    first = copies[0]
    x, y = quantise(backend, _random(rows, first.k), form), empty((rows, first.n), np.float32)
    with backend.record() as program:
        for matrix in copies:
            linear(backend, x, matrix, out=y)
    scale = 1 / len(copies)
    return _BestTime(lambda: scale * _timed(program.run))


def _attention_timing(backend: Backend, shape: AttentionShape, rows: int) -> _BestTime:
    """A chunk at the end of CONTEXT tokens."""
    cache = empty_kv_cache(backend, CONTEXT // BLOCK_SIZE, BLOCK_SIZE, shape.kv_heads, shape.key_dim, shape.value_dim)
    keys, values = (_random(CONTEXT, shape.kv_heads, lanes) for lanes in (shape.key_dim, shape.value_dim))
    kv_write(backend, cache, keys, values, np.arange(CONTEXT, dtype=np.int64))
    q = _random(rows, shape.heads, shape.key_dim)
    table = np.arange(CONTEXT // BLOCK_SIZE, dtype=np.int64)[None]
    chunks = Chunks(np.array([0, rows]), np.array([CONTEXT]), table)
    out = empty((rows, shape.heads, shape.value_dim), np.float32)
    with backend.record() as program:
        attention(backend, q, cache, chunks, shape.key_dim**-0.5, out=out)
    return _BestTime(lambda: _timed(program.run))


def _norm_timing(backend: Backend, rows: int, width: int) -> _BestTime:
    h, weight, out = _random(rows, width), np.ones(width, np.float32), empty_activations(rows, width)
    with backend.record() as program:
        for _ in range(16):
            norm(backend, NormForm(), h, weight, quantised=out)
    return _BestTime(lambda: _timed(program.run) / 16)


def _linear_curve(
    shape: LinearShape, timings: dict[tuple[LinearShape, int], _BestTime], read: float, operations: float
) -> EfficiencyCurve:
    n = shape.measured_outputs
    nbytes = packed_bytes(shape.format, n, shape.k, False)
    work = n * shape.k * limb_operations(shape.format, shape.limbs)
    points = []
    for rows in ROWS:
        products_s = arithmetic_part(timings[shape, rows].best, nbytes / read)
        points.append((rows, rows * work / (products_s * operations)))
    most = max(reached for rows, reached in points if rows >= MANY_ROWS)
    return make_curve([(rows, min(reached, most)) for rows, reached in points])


def _attention_curve(shape: AttentionShape, timings: dict[int, _BestTime], operations: float) -> EfficiencyCurve:
    """The keys and values of one layer fit into the processor's cache, so nothing is subtracted for memory."""
    points = []
    for rows, timing in timings.items():
        work = 2.0 * rows * (CONTEXT - (rows - 1) / 2) * shape.heads * (shape.key_dim + shape.value_dim)
        points.append((rows, work / (timing.best * operations)))
    return make_curve(points)


def _random(*shape: int) -> F32:
    array: F32 = np.random.default_rng(shape).standard_normal(shape, np.float32)
    return array


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
