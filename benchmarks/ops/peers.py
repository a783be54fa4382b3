"""Cases of peers: their matmul at our shapes, with the same number of matrices."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.ops.linear import num_calls
from benchmarks.ops.peer_install import Peer
from benchmarks.ops.peer_process import PeerProcess
from benchmarks.ops.settings import OpsSettings
from surefoot.bench.harness.timing import Case

FORMATS = {"torch": ("bfloat16",), "llama.cpp": ("q8_0", "q4_0")}
PEER_SLOWNESS = 4  # estimated; peers get fewer calls per sample by this factor


@dataclass(frozen=True)
class PeerMatrices:
    """Copies of a matrix in a peer's process."""

    key: str  # names the copies in the peer's process
    model: str
    matrix: str
    n: int  # outputs
    k: int  # columns
    format: str  # the peer's name of the weight format
    count: int  # copies
    nbytes: int  # per copy


@dataclass
class RunningPeer:
    """A peer's process. It is started early, so that its imports overlap with our own preparation."""

    name: str
    process: PeerProcess

    @classmethod
    @contextmanager
    def start(cls, peer: Peer, threads: int) -> Iterator["RunningPeer"]:
        process = PeerProcess(peer.python, peer.engine, threads, peer.options)
        try:
            yield cls(peer.name, process)
        finally:
            process.close()

    def describe(self) -> dict[str, Any]:
        return self.process.ask("describe")

    def cases(self, settings: OpsSettings, int8_peak: float) -> Iterator[Case]:
        pools = list(self._prepare(settings))
        for rows in settings.rows:
            for pool in pools:
                yield self._case(pool, rows, settings, int8_peak)

    def _prepare(self, settings: OpsSettings) -> Iterator[PeerMatrices]:
        for model in settings.models:
            for matrix, (n, k) in model.matrices.items():
                count = max(2, -(-settings.pool_bytes // (n * k)))
                for name in FORMATS[self.name]:
                    key = f"{model.name}/{matrix}/{name}"
                    reply = self.process.ask("prepare", key=key, n=n, k=k, format=name, matrices=count)
                    yield PeerMatrices(key, model.name, matrix, n, k, name, count, reply["bytes"])

    def _case(self, pool: PeerMatrices, rows: int, settings: OpsSettings, int8_peak: float) -> Case:
        operations = 2.0 * rows * pool.n * pool.k
        # Peers reach a smaller share of the peak, so fewer calls take about as long as ours.
        calls = num_calls(pool.nbytes, PEER_SLOWNESS * operations, pool.count, settings, int8_peak)
        return Case(
            f"{self.name}/{pool.key}/{rows} rows", "linear", self.process.timer(pool.key, rows, calls), calls,
            pool.nbytes, operations, self.name,
            {"model": pool.model, "matrix": pool.matrix, "n": pool.n, "k": pool.k, "format": pool.format, "rows": rows},
        )  # fmt: skip
