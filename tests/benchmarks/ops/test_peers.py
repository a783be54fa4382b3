"""The line protocol of peers, with a fake engine, and with real engines if they are installed."""

import math
import sys
from pathlib import Path

import pytest

from benchmarks.ops.peer_install import GGML_ENGINE, Peer, find_llama, find_torch
from benchmarks.ops.peer_process import PeerError, PeerProcess
from benchmarks.ops.peers import RunningPeer
from benchmarks.ops.settings import SMOKE

FAKE_ENGINE = """
import os
print("noise on stdout, as libraries make it")

class Engine:
    def __init__(self, threads, options):
        self.threads, self.options, self.keys = threads, options, {}
    def describe(self):
        return {"threads": self.threads, **self.options}
    def prepare(self, key, n, k, format, matrices):
        self.keys[key] = n * k
        return {"bytes": 2 * n * k}
    def run(self, key, rows, calls):
        if rows == 13:
            os._exit(3)
        print("more noise")
        return rows * calls * self.keys[key] * 1e-6

def open_engine(threads, options):
    return Engine(threads, options)
"""


@pytest.fixture
def fake_peer(tmp_path: Path) -> Peer:
    engine = tmp_path / "fake_peer.py"
    engine.write_text(FAKE_ENGINE)
    return Peer("torch", Path(sys.executable), engine, {"colour": "blue"})


def test_a_peer_times_itself(fake_peer: Peer) -> None:
    with RunningPeer.start(fake_peer, 3) as running:
        assert running.describe() == {"threads": 3, "colour": "blue"}
        cases = list(running.cases(SMOKE, 1e12))
        assert len(cases) == len(SMOKE.rows) * len(SMOKE.headline.matrices)
        for case in cases:
            n, k, rows = (int(case.labels[label]) for label in ("n", "k", "rows"))
            assert (case.engine, case.bytes, case.operations) == ("torch", 2 * n * k, 2 * n * k * rows)
            assert case.run() / case.calls == pytest.approx(rows * n * k * 1e-6)


def test_errors_and_exits_are_reported(fake_peer: Peer) -> None:
    process = PeerProcess(fake_peer.python, fake_peer.engine, 1, {})
    with pytest.raises(PeerError, match="KeyError: 'unknown'"):
        process.ask("run", key="unknown", rows=1, calls=1)
    process.ask("prepare", key="a", n=1, k=1, format="f", matrices=1)
    with pytest.raises(PeerError, match="ended with code 3"):
        process.ask("run", key="a", rows=13, calls=1)
    with pytest.raises(PeerError, match="ended with code 3"):
        process.ask("describe")
    process.close()


@pytest.mark.parametrize("find", [find_torch, find_llama])
def test_installed_peers_time_products(find: object) -> None:
    peer = find()  # type: ignore[operator]
    if peer is None:
        pytest.skip("this peer is not installed: `python -m benchmarks ops --peers` installs it")
    with RunningPeer.start(peer, 1) as running:
        cases = [case for case in running.cases(SMOKE, 1e12) if case.labels["rows"] in (1, 4)]
        assert all(0 < case.run() < 5 for case in cases)


def test_ggml_computes_the_product() -> None:
    peer = find_llama()
    if peer is None:
        pytest.skip("llama.cpp is not installed: `python -m benchmarks ops --peers` installs it")
    assert peer.engine == GGML_ENGINE
    x = [math.sin(i) for i in range(512)]
    process = PeerProcess(peer.python, peer.engine, 2, peer.options)
    process.ask("prepare", key="w", n=64, k=512, format="q8_0", matrices=3)
    weights = process.ask("weights", length=64 * 512)["values"]
    got = process.ask("product", key="w", x=x)["values"]
    process.close()
    for row in range(64):
        want = sum(a * b for a, b in zip(x, weights[row * 512 : (row + 1) * 512], strict=True))
        assert got[row] == pytest.approx(want, abs=0.5)  # 8 bits on both sides, over sums of about 16
