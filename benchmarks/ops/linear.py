"""Cases of the integer matmul. Each rotates over many copies of a matrix, so that weights are read from memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from benchmarks.ops.rotation import Cursor, Rotation
from benchmarks.ops.settings import FORMATS, FORMS, OpsSettings
from benchmarks.ops.shapes import ModelShape
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.timing import Case, timed
from surefoot.ops import Activations, Backend, linear, quantise
from surefoot.ops.arrays import F32, empty
from surefoot.ops.random_weights import copies_of, random_weights
from surefoot.ops.weights import PackedWeights, WeightFormat, pack

MAX_WINDOWS = 16  # recorded programs of a case, each over `calls` copies of the matrix


@dataclass(frozen=True)
class Pool:
    """Copies of a packed matrix at several places in memory."""

    model: ModelShape
    matrix: str  # its name
    format: str  # key of FORMATS
    copies: tuple[PackedWeights, ...]
    cursor: Cursor = field(default_factory=Cursor)  # next copy to read

    @property
    def name(self) -> str:
        return f"{self.model.name}/{self.matrix}/{self.format}"


def products(weights: WeightFormat, limbs: int) -> int:
    """The number of int8 products for a weight and an activation: one for each pair of limbs."""
    return weights.limbs * limbs


def make_pools(backend: Backend, settings: OpsSettings, say: Say) -> list[Pool]:
    pools = []
    for model in settings.models:
        for name in settings.formats:
            say(f"packing {model.name}, {name}")
            for matrix, (n, k) in model.matrices.items():
                packed = pack(backend, random_weights(n, k, FORMATS[name]))
                count = max(2, -(-settings.pool_bytes // packed.nbytes))
                pools.append(Pool(model, matrix, name, copies_of(backend, packed, count)))
    return pools


def num_calls(nbytes: float, operations: float, count: int, settings: OpsSettings, int8_peak: float) -> int:
    """The number of calls in a sample: enough to be timed well, few enough to keep rounds short."""
    max_operations = settings.sample_seconds * int8_peak
    return int(max(1, min(settings.sample_bytes / nbytes, max_operations / operations, count)))


class LinearCases:
    """Builds the cases, and owns the rows and results that they share."""

    def __init__(self, backend: Backend, settings: OpsSettings, pools: list[Pool], int8_peak: float) -> None:
        self._backend, self._settings, self._pools, self._peak = backend, settings, pools, int8_peak
        max_size = max(settings.rows) * max(pool.copies[0].n for pool in pools)
        self._results: F32 = empty((max_size,), np.float32)
        self._floats = cache(self._make_floats)
        self._rows = cache(self._make_rows)

    def cases(self) -> Iterator[Case]:
        """Row counts vary slowest: between two reads of a pool all other pools are read."""
        for rows in self._settings.rows:
            for limbs in FORMS:
                for k in sorted({pool.copies[0].k for pool in self._pools}):
                    yield self._quantise(rows, limbs, k)
                for pool in self._pools:
                    yield self._linear(rows, limbs, pool)

    def _linear(self, rows: int, limbs: int, pool: Pool) -> Case:
        first = pool.copies[0]
        operations = 2.0 * rows * first.n * first.k * products(first.format, limbs)
        calls = num_calls(first.nbytes, operations, len(pool.copies), self._settings, self._peak)
        x, y = self._rows(rows, first.k, limbs), self._results[: rows * first.n].reshape(rows, first.n)
        bodies = [partial(linear, self._backend, x, weights, out=y) for weights in pool.copies]
        num_windows = min(len(bodies) // calls, MAX_WINDOWS)
        starts = [i * len(bodies) // num_windows for i in range(num_windows)]
        windows = [self._program(bodies[start : start + calls]) for start in starts]
        return Case(
            f"linear/{pool.name}/{limbs} limbs/{rows} rows", "linear", Rotation(windows, pool.cursor), calls,
            first.nbytes, operations,
            labels={"model": pool.model.name, "matrix": pool.matrix, "n": first.n, "k": first.k,
                    "format": pool.format, "limbs": limbs, "rows": rows},
        )  # fmt: skip

    def _quantise(self, rows: int, limbs: int, k: int) -> Case:
        x, out = self._floats(k)[:rows], self._rows(rows, k, limbs)
        calls = int(max(1, min(64, self._settings.sample_bytes / x.nbytes)))
        body = self._program([partial(quantise, self._backend, x, FORMS[limbs], out)] * calls)
        labels: dict[str, str | int] = {"k": k, "limbs": limbs, "rows": rows}
        return Case(f"quantise/{k}/{limbs} limbs/{rows} rows", "quantise", timed(body), calls, x.nbytes, labels=labels)

    def _program(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """A recorded program of these calls. The cost of Python is measured separately."""
        with self._backend.record() as program:
            for call in calls:
                call()
        return program.run

    def _make_floats(self, k: int) -> F32:
        floats: F32 = np.random.default_rng(k).standard_normal((max(self._settings.rows), k), np.float32)
        return floats

    def _make_rows(self, rows: int, k: int, limbs: int) -> Activations:
        return quantise(self._backend, self._floats(k)[:rows], FORMS[limbs])
