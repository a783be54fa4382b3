import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from surefoot import __version__, machine
from surefoot.cli import doctor
from surefoot.cli.main import app
from surefoot.machine import Cores
from surefoot.ops import supported_variants
from surefoot.ops.node_probe import NodeBandwidth
from tests.machine.recorded import desktop, record, server

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def _no_forced_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUREFOOT_VARIANT", raising=False)


def test_version() -> None:
    result = run(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"surefoot {__version__}\n"


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(words: list[str]) -> None:
    assert "doctor" in run(app, words).output


def test_json_contains_the_measurements() -> None:
    result = run(app, ["doctor", "--json"])
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["variant"] == supported_variants()[0]
    assert report["cores"]["usable"] == machine.usable_cores()
    assert len(report["physical_cores"]) == report["cores"]["physical"]
    assert 0 < report["memory"]["limit_bytes"] <= report["memory"]["total_bytes"]
    measured = report["measured"]
    assert measured["threads"] == machine.usable_cores()
    assert measured["read_bytes_per_second"] > 1e8
    assert measured["int8_operations_per_second"] > 1e8


def test_the_limit_of_decoding_is_bandwidth_over_bytes() -> None:
    assert doctor._decode_limit(18e9).startswith("18 tokens/s for 1 GB · 3.6 tokens/s for 5 GB · 1 tokens/s for 18 GB")


def test_a_machine_of_two_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, server(sockets=2, cores=16, threads=2), memory_nodes="0")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    nodes, cores = machine.nodes(tmp_path), machine.physical_cores(tmp_path)
    assert doctor._physical_line(cores) == "32 on 2 sockets, 2 processors each"
    assert [doctor._node_line(node, cores) for node in nodes] == [
        "node 0: processors 0-15, 32-47 (16 cores allowed); 128.0 GiB; distances 10, 32",
        "node 1: processors 16-31, 48-63 (16 cores allowed); 128.0 GiB, not allowed; distances 32, 10",
    ]
    reads = [NodeBandwidth(1, 0, 16, 34e9), NodeBandwidth(1, 1, 16, 98.15e9)]
    assert doctor._bandwidth_line(reads) == "node 1 (16 threads): 34.0 GB/s from node 0, 98.2 GB/s from node 1"


def test_whether_threads_are_bound_and_why_not() -> None:
    shares = (machine.NodeShare(0, (0, 1), 2), machine.NodeShare(1, (2,), 1))
    bound = machine.Placement(shares)
    assert doctor._threads_line(bound, "") == (
        "bound: 2 to node 0, 1 to node 1; weights lie on the node whose threads read them"
    )
    assert doctor._threads_line(bound, "Operation not permitted").endswith("weights lie anywhere")
    assert doctor._threads_line(machine.Placement(reason="one thread"), "") == "not bound to nodes: one thread"
    (advice,) = doctor._advice(Cores(8, 8, 8, None), "madvise", frozenset(), 0.0, "Operation not permitted")
    assert "--cap-add SYS_NICE" in advice


def test_a_desktop_with_slow_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, desktop(fast=8, slow=16), "cpu_core")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))
    told = doctor._physical_line(machine.physical_cores(tmp_path))
    assert told == "24 (8 fast, 16 slow) on 1 socket, 1 or 2 processors each"


def test_table_without_measuring() -> None:
    result = run(app, ["doctor", "--no-measure"])
    assert result.exit_code == 0
    assert supported_variants()[0] in result.output
    assert "GB/s" not in result.output


def test_forced_variant_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_VARIANT", "portable")
    report = doctor.examine(measure=False)
    assert report.variant == "portable"
    assert "SUREFOOT_VARIANT" in report.reason


def test_a_variant_that_does_not_exist_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_VARIANT", "abacus")
    result = run(app, ["doctor"])
    assert result.exit_code == 1
    assert "unset SUREFOOT_VARIANT" in result.output


def test_a_missing_variant_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.ops.backend.cpu_features", lambda: frozenset({"avx2"}))
    report = doctor.examine(measure=False)
    assert report.variant == "avx2"
    assert "avx512 needs avx512, avx512_vnni" in report.reason


def test_advice() -> None:
    cores = Cores(online=8, allowed=8, physical=8, quota=2.5)
    features = frozenset({"amx_int8"})
    told = " ".join(doctor._advice(cores, "never", features, load=3.0))
    assert "arch_prctl" in told
    assert "2.5" in told
    assert "Grant 3" in told
    assert "transparent_hugepage" in told
    assert "busy" in told
    assert doctor._advice(replace(cores, quota=None), "madvise", frozenset(), load=0.0) == ()


def test_measuring_uses_no_more_threads_than_allowed() -> None:
    everything = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everything)})
        report = doctor.examine(measure=True)
    finally:
        os.sched_setaffinity(0, everything)
    assert report.measured is not None
    assert report.measured.threads == 1
