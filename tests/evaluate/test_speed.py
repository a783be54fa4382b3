"""Speeds of a model as it is served."""

from pathlib import Path

import pytest

from surefoot.evaluate.speed import NEW_TOKENS, PROMPT_TOKENS, load_served, measure_served
from tests.cli.process import run
from tests.stories import stories_gguf


def test_each_model_is_measured_as_served() -> None:
    llms = [load_served(str(stories_gguf()), fmt, None, 1) for fmt in ("w8", "f32")]
    speeds = measure_served(llms, list(range(3, 3 + PROMPT_TOKENS + 50)), rounds=3)
    assert len(speeds) == 2
    for speed in speeds:
        assert 0 < speed.decode.median <= speed.decode.best
        assert 0 < speed.prefill.median <= speed.prefill.best


@pytest.mark.parametrize("length", [1, 5, PROMPT_TOKENS + NEW_TOKENS])
def test_short_and_long_prompts(length: int) -> None:
    llm = load_served(str(stories_gguf()), "w8", None, 1)
    (speed,) = measure_served([llm], [5] * length, rounds=1)
    assert speed.decode.median > 0


def test_compare_reports_the_arithmetic_of_each_model(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    words = ["--text", __file__, "--context", "64", "--limit", "128", "--report", report]
    done = run("eval", "compare", stories_gguf(), stories_gguf(), *words)
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    assert "in float32" in shown
    assert "as served" in shown
    assert "(both as served)." in shown
    assert "eval compare" in report.read_text()
