"""The benchmark of batching and of the prefix cache measures every figure on a tiny model."""

import math

from benchmarks.batching.workloads import queued, shared_prefix
from tests.bench.reports import report_of
from tests.stories import stories_gguf

FIGURES = {
    "static_batching_ratio", "static_batching_50_200_ratio", "static_batching_equal_ratio",
    "static_batching_dropping_ratio", "prefix_cache_ratio", "kv_waste",
}  # fmt: skip


def test_every_figure_is_measured() -> None:
    report = report_of("batching", str(stories_gguf()), seconds=16, wanted=FIGURES)
    figures = report["figures"]
    assert set(figures) == FIGURES
    assert all(isinstance(figures[name], float) and math.isfinite(figures[name]) for name in FIGURES)
    assert 0 < figures["kv_waste"] < 0.04
    assert figures["prefix_cache_ratio"] > 1
    profile = report["model"]["step_profile"]
    assert profile["num_requests"] == 32
    assert all(seconds > 0 for seconds in profile.values())
    assert profile["native"] > profile["schedule"]


def test_the_workloads() -> None:
    lengths = sorted(task.num_new for task in queued(2000, 49152, 1, "log-uniform"))
    assert 10 == lengths[0] < 395 < lengths[-1] <= 400
    assert abs(lengths[1000] - 63) < 8  # the root of 10 * 400
    halves = [task.num_new for task in queued(64, 49152, 1, "50 or 200")]
    assert halves.count(50) == halves.count(200) == 32
    assert halves != sorted(halves)
    assert {task.num_new for task in queued(64, 49152, 1, "equal", 0.5)} == {50}
    shared = shared_prefix(32, 49152, 1, 1.0, cached=True)
    assert {len(task.prompt) for task in shared} == {1056}
    assert len({task.prompt[:1024] for task in shared}) == len({task.namespace for task in shared}) == 1
    assert len({task.namespace for task in shared_prefix(32, 49152, 1, 1.0, cached=False)}) == 32
