"""The benchmark of plans on a model of milliseconds: every prediction has its measurement."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.plan.figures import MIB, Compared, plan_figures
from tests.stories import stories_gguf


def test_every_case_is_predicted_and_measured() -> None:
    words = ["plan", str(stories_gguf()), "--json", "--quick", "--seconds", "1", "--threads", "1"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {"median_error", "worst_error", "memory_error"} == set(report["figures"])
    names = [case["name"] for case in report["model"]["compared"]]
    assert {"decode 1, s a step", "8 users, TTFT p95, s", "memory, bytes"} <= set(names)
    assert all(case["predicted"] > 0 and case["measured"] > 0 for case in report["model"]["compared"])


def test_figures() -> None:
    cases = [Compared("a", 1.1, 1.0), Compared("b", 0.8, 1.0), Compared("c", 1.0, 1.0)]
    near, far = (Compared("memory", predicted * MIB, 1000 * MIB) for predicted in (1090, 1200))
    by_name = {figure.name: figure for figure in plan_figures(cases, far)}
    assert by_name["median_error"].value == pytest.approx(0.1)
    assert by_name["worst_error"].value == pytest.approx(0.2)
    assert by_name["worst_error"].met
    assert by_name["memory_error"].value == pytest.approx(0.2)
    assert not by_name["memory_error"].met
    assert plan_figures(cases, near)[2].value == 0
