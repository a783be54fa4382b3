"""Several settings of the machine in one report."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.plan import matrix
from benchmarks.plan.figures import MIB, Compared
from benchmarks.plan.run import MEMORY
from tests.stories import stories_gguf


def report(error: float) -> dict[str, Any]:
    cases = [{"name": "decode 1", "predicted": 1 + error, "measured": 1.0},
             {"name": MEMORY, "predicted": 1000.0 * MIB, "measured": (1000 + 1000 * error) * MIB}]  # fmt: skip
    return {"model": {"compared": cases, "rates": {}, "path": "a"}, "machine": {}}


def test_all_settings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter((0.1, 0.2, 0.3, 0.4))
    monkeypatch.setattr(matrix, "_run", lambda model, setting, options: report(next(errors)))
    monkeypatch.setattr(matrix, "_missing", lambda setting: "none here" if setting.name == "avx2" else None)
    results = matrix.run_matrix("a", [], lambda text: None)
    median, worst, memory = results.figures
    assert median.value == pytest.approx(0.2)
    assert worst.value == pytest.approx(0.3)
    assert memory.value == pytest.approx(300 / 1300)
    assert results.absent == {"avx2": "none here"}
    assert set(results.model["by_setting"]) == {"all cores", "1 thread", "quota of one core"}


def test_memory_is_the_worst_of_all() -> None:
    near, far = (Compared(MEMORY, size * MIB, 1000 * MIB) for size in (1010, 1500))
    assert matrix.joined_figures([Compared("a", 1.0, 1.0)], [far, near])[2].value == pytest.approx(0.5)


@pytest.mark.nightly
def test_every_setting_runs() -> None:
    words = ["plan", str(stories_gguf()), "--matrix", "--quick", "--seconds", "1", "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    found = json.loads(result.stdout)["model"]["by_setting"]
    assert "all cores" in found
