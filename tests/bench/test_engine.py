"""The engine's benchmark on a model of milliseconds: that every figure comes, and what the workloads are."""

import math

from surefoot.bench.workloads import mixed, num_tokens, queued, shared_prefix
from tests.bench.reports import report_of
from tests.stories import stories_gguf

FIGURES = {
    "output_tps_8", "output_tps_32", "step_of_limit_32", "static_batching_ratio", "static_batching_50_200_ratio",
    "static_batching_equal_ratio", "static_batching_dropping_ratio",
    "prefix_cache_ratio", "gap_p99_over_median", "overhead_share_32", "kv_waste",
}  # fmt: skip
PEERS = {
    f"{figure}_{peer}{load}"
    for peer in ("llamacpp", "openvino", "vllm")
    for figure, load in (("vs", "_8"), ("vs", "_32"), ("vs", "_shared32"), ("gap_p99_over_median", ""))
}


def test_every_figure_comes() -> None:
    report = report_of("engine", str(stories_gguf()), seconds=24, wanted=FIGURES)
    figures = report["figures"]
    assert set(figures) == FIGURES | PEERS
    assert all(isinstance(figures[name], float) and math.isfinite(figures[name]) for name in FIGURES)
    assert all(figures[name] is None and report["reasons"][name] for name in PEERS)
    assert 0 < figures["overhead_share_32"] < 1
    assert 0 < figures["kv_waste"] < 0.04
    assert figures["prefix_cache_ratio"] > 1
    profile = report["model"]["step_profile"]
    assert profile["num_requests"] == 32
    assert all(seconds > 0 for seconds in profile.values())
    assert profile["native"] > profile["schedule"]
    assert set(report["model"]["scales"]) == {case["name"] for case in report["cases"]}


def test_the_mixed_workload() -> None:
    tasks = mixed(32, 49152, seed=1)
    assert all(128 <= len(task.prompt) <= 256 and 16 <= task.num_new <= 128 for task in tasks)
    again = mixed(32, 49152, seed=2)
    assert [len(task.prompt) for task in tasks] == [len(task.prompt) for task in again]
    assert all(a.prompt != b.prompt for a, b in zip(tasks, again, strict=True))
    assert num_tokens(mixed(32, 49152, 1, 0.5)) == sum(max(1, round(task.num_new / 2)) for task in tasks)


def test_the_other_workloads() -> None:
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
