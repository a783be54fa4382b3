"""The cache's benchmark on a model of milliseconds: that every figure comes, beside its prediction."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.cache.figures import CacheRuns, cache_figures
from benchmarks.cache.sessions import TimedRun, cached, capacity_for_one, run_tasks
from benchmarks.cache.write_cost import LEAST_PAIRS, Windows, WriteCost
from surefoot import LLM
from surefoot.bench.harness.workloads import Task
from tests.stories import stories_gguf


def test_every_figure_comes() -> None:
    words = ["cache", str(stories_gguf()), "--json", "--quick", "--seconds", "4", "--threads", "1"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    figures, predictions = report["figures"], report["model"]["predictions"]
    assert figures["hit_equals_miss"] == 1
    assert all(figures[f"{kind}_ttft_share"] > 0 for kind in ("restart", "swap", "pressure"))
    assert figures["disk_bytes_per_token"] == pytest.approx(predictions["disk_bytes_per_token"], rel=0.1)
    assert set(predictions) == set(figures)
    assert report["model"]["num_windows"] >= 2 * LEAST_PAIRS
    assert report["targets"]["restart_ttft_share"]["bound"] == 0.1


def first_tokens(*seconds: float, tokens: tuple[int, ...] = (1,)) -> list[TimedRun]:
    return [TimedRun({"0": (tokens, ())}, first_s) for first_s in seconds]


def test_figures() -> None:
    runs = CacheRuns(
        cold=first_tokens(10.0, 20.0),
        restart=first_tokens(0.2, 0.4),
        swap=first_tokens(0.3, 0.6),
        pressure=first_tokens(0.4, 0.8),
        kept_bytes=330,
        kept_tokens=16,
    )
    runs.compare(runs.cold[0], runs.restart[0])
    runs.compare(runs.cold[0], first_tokens(0.2, tokens=(2,))[0])
    writing, plain = Windows([2.2, 2.0, 9.0], [4.0] * 3, [1.0, 1.2] * 50), Windows([2.0] * 3, [4.0] * 3, [1.0] * 99)
    write = WriteCost(writing, plain, num_tokens=512, write_cpu_s=0.24)
    figures = {figure.name: figure for figure in cache_figures(runs, write, is_small=False)}
    shares = [figures[f"{kind}_ttft_share"] for kind in ("restart", "swap", "pressure")]
    assert [figure.value for figure in shares] == pytest.approx([0.02, 0.03, 0.04])
    assert [figure.met for figure in shares] == [True, True, False]
    assert figures["write_overhead"].value == pytest.approx(0.05)  # half of a window's growth
    assert not figures["write_overhead"].met
    assert figures["write_cpu_overhead"].value == 0
    assert figures["write_cpu_share"].value == pytest.approx(0.24 / 24)
    assert figures["gap_growth"].value == pytest.approx(0.2)
    assert figures["hit_equals_miss"].value == 0.5
    assert figures["disk_bytes_per_token"].value == 330 / 16


def test_memory_for_one_prompt_drives_the_other_out(tmp_path: Path) -> None:
    llm = LLM(stories_gguf(), threads=1, speculate="off")
    tasks = [Task(tuple(3 + (7 * n + start) % 400 for n in range(100)), 4) for start in (0, 50)]
    with cached(llm, tmp_path, capacity_for_one(llm.capacity, 100, 4)) as session:
        for task in tasks:
            run_tasks(session.engine, [task])
        session.finish_writing()
        assert session.tier.num_hit_tokens == 0
        for number, task in enumerate(tasks):
            run_tasks(session.engine, [task])
            assert session.tier.num_hit_tokens == 96 * (number + 1)
