"""The server's benchmark measures every figure on a tiny model, without peers."""

import math
from pathlib import Path

import pytest

from surefoot.bench.harness.http_load import LoadResult, Outcome
from surefoot.bench.serve.fairness import Fairness
from surefoot.bench.serve.figures import Served, serve_questions
from surefoot.bench.serve.goodput import LoadPoint, point
from tests.bench.reports import report_of
from tests.stories import stories_gguf

FIGURES = {"streams_tps", "goodput", "ttft_p95_ms", "gap_p99_ms", "single_user_ttft_ratio", "ready_s"}


def test_every_figure_is_measured(tmp_path: Path) -> None:
    svg = tmp_path / "goodput.svg"
    report = report_of("serve", str(stories_gguf()), "--svg", str(svg), seconds=6, wanted=FIGURES)
    figures = report["figures"]
    missing = {name: report["reasons"].get(name) for name in FIGURES if not math.isfinite(figures[name] or math.nan)}
    assert not missing, missing
    assert figures["streams_tps"] > 0
    assert figures["goodput"] > 0
    others = set(figures) - FIGURES
    assert all(figures[name] is None and report["reasons"][name] for name in others)
    assert len(report["model"]["points"]) == 2
    assert all(load_point["num_failed"] == 0 for load_point in report["model"]["points"])
    assert svg.read_text().count("<circle") == 2


def synthetic_point(engine: str, rate: float, num_good: int, num_late: int) -> LoadPoint:
    outcomes = [Outcome(0.0, (0.1, 0.2), 0.2, 2)] * num_good + [Outcome(0.0, (9.0, 9.1), 9.1, 2)] * num_late
    return point(engine, rate, LoadResult(outcomes, 10.0), 10.0)


def test_figures_of_peers() -> None:
    points = [synthetic_point("surefoot", 1, 10, 0), synthetic_point("surefoot", 4, 30, 10)]
    points += [
        synthetic_point("llamacpp", 1, 8, 2),
        synthetic_point("llamacpp", 4, 1, 39),
        synthetic_point("openvino", 1, 0, 5),
    ]
    served = Served(
        {}, points, Fairness((0.1, 0.02), (0.02, 0.2, 0.25), 0.05), [1.5, 1.7, 9.0], {"vllm": "it does not load here"}
    )
    figures = {question.name: question.figure() for question in serve_questions(served)}
    assert (figures["goodput"].value, figures["goodput_llamacpp"].value) == (3.0, 0.8)
    assert figures["goodput_vs_llamacpp"].met is True
    assert figures["goodput_openvino"].value == 0
    assert figures["goodput_vs_openvino"].value is None
    assert "no request within the limits" in (figures["goodput_vs_openvino"].reason or "")
    assert figures["goodput_vs_vllm"].reason == "it does not load here"
    assert figures["single_user_ttft_ratio"].value == pytest.approx(2.0)
    assert figures["single_user_ttft_ratio"].met is True
    assert figures["ready_s"].value == 1.7
    assert figures["ttft_p95_ms"].value == 9000
