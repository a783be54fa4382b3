"""`python -m benchmarks ops` from the command line at tiny shapes, and properties of its cases."""

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.ops.figures import Figures
from benchmarks.ops.linear import num_calls, products
from benchmarks.ops.run import check_memory, needed_bytes
from benchmarks.ops.settings import FORMATS, FULL, QUICK, SMOKE, OpsSettings
from surefoot import machine
from surefoot.ops import Backend, linear, pack, quantise, supported_variants
from surefoot.ops.random_weights import copies_of, random_weights
from tests.bench.reports import report_of
from tests.benchmarks.ops.figures import NEEDED

MIB = 1 << 20
NOT_IN_SMOKE = ("torch_", "llama_", "attention_prefill")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["ops", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("variant", supported_variants())
def test_json_of_every_variant(variant: str) -> None:
    command = ("ops", "--smoke", "--no-peers", "--variant", variant, "--threads", "2")
    wanted = {figure.name for figure in Figures({}, SMOKE, {}).compute() if not figure.name.startswith(NOT_IN_SMOKE)}
    result = report_of(*command, seconds=4, wanted=wanted - {"call_overhead_share_per_op"})
    assert result.keys() >= {"figures", "limits", "cases", "machine"}
    assert result["figures"].keys() >= NEEDED
    for name, value in result["figures"].items():
        assert (value is None) == name.startswith(NOT_IN_SMOKE), (name, result["reasons"].get(name))
        assert (value is None) == (name in result["reasons"])
        assert value is None or value > 0 or name == "call_overhead_share_per_op"
    assert result["limits"].keys() >= {"read_bandwidth", "int8_peak", "float32_peak"}
    assert (result["machine"]["variant"], result["machine"]["threads"]) == (variant, 2)
    assert 0 <= result["machine"]["others_cpu_share"] <= 1
    assert all(case["best_seconds"] <= case["median_seconds"] for case in result["cases"])


def test_tables() -> None:
    shown = run("--smoke", "--no-peers", "--seconds", "2")
    for title in ("Limits", "Integer matmul", "Attention", "Calls from Python", "Figures"):
        assert title in shown
    assert "left out by --no-peers" in shown


def test_an_unknown_variant_is_an_error() -> None:
    result = CliRunner().invoke(app, ["ops", "--smoke", "--variant", "z80"])
    assert result.exit_code == 1
    assert "z80" in result.output


@pytest.mark.parametrize("settings", [QUICK, FULL])
def test_weights_and_contexts_exceed_the_cache(settings: OpsSettings) -> None:
    """Between two reads of a matrix's copies, all other pools are read. Together they must exceed the processor's
    cache."""
    pools = [max(2 * n * k, settings.pool_bytes) for model in settings.models for n, k in model.matrices.values()]
    assert len(settings.formats) * sum(pools) >= 1024 * MIB
    assert settings.footprint_bytes >= 512 * MIB
    assert settings.kv_bytes >= 256 * MIB


def test_products_of_limbs() -> None:
    assert [products(FORMATS[name], 2) for name in ("w8", "w4", "w8 grouped", "w4 wide")] == [2, 2, 4, 4]
    assert [products(FORMATS[name], 1) for name in ("w8", "w4", "w8 grouped", "w4 wide")] == [1, 1, 2, 2]


def test_calls_of_a_sample() -> None:
    settings = QUICK
    assert num_calls(settings.sample_bytes / 8, 1, 100, settings, 1e12) == 8  # by bytes
    assert num_calls(1, settings.sample_seconds * 1e12 / 5, 100, settings, 1e12) == 5  # by operations
    assert num_calls(1, 1, 7, settings, 1e12) == 7  # by copies
    assert num_calls(1e18, 1e18, 7, settings, 1e12) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_copies_are_the_same_matrix_elsewhere(name: str) -> None:
    backend = Backend(threads=1)
    x = quantise(backend, np.random.default_rng(0).standard_normal((3, 96), np.float32))
    packed = pack(backend, random_weights(40, 96, FORMATS[name]))
    copies = copies_of(backend, packed, 3)
    want = linear(backend, x, packed)
    assert np.ptp(want) > 0
    assert len({copy.data.ctypes.data for copy in copies}) == 3
    for copy in copies:
        assert np.array_equal(linear(backend, x, copy), want)


def test_too_little_memory_is_reported_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert needed_bytes(FULL, ["torch", "llama.cpp"]) > needed_bytes(FULL, []) > needed_bytes(QUICK, [])
    monkeypatch.setattr(machine, "memory", lambda: machine.Memory(64 * MIB, None))
    check_memory(SMOKE, [])
    with pytest.raises(MemoryError, match=r"allows 0\.1$"):  # --quick needs more than that too
        check_memory(FULL, [])
    enough = int(1.3 * needed_bytes(QUICK, []))
    monkeypatch.setattr(machine, "memory", lambda: machine.Memory(enough, None))
    with pytest.raises(MemoryError, match="try --quick"):
        check_memory(FULL, [])
