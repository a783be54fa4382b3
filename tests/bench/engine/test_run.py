"""The engine's benchmark measures every figure on a tiny model."""

import math

from tests.bench.reports import report_of
from tests.stories import stories_gguf

FIGURES = {
    "output_tps_8", "output_tps_32", "step_of_limit_32", "gap_p99_over_median", "overhead_share_32",
}  # fmt: skip
PEERS = {
    f"{figure}_{peer}{load}"
    for peer in ("llamacpp", "openvino", "vllm")
    for figure, load in (("vs", "_8"), ("vs", "_32"), ("vs", "_shared32"), ("gap_p99_over_median", ""))
}


def test_every_figure_is_measured() -> None:
    report = report_of("engine", str(stories_gguf()), seconds=24, wanted=FIGURES)
    figures = report["figures"]
    assert set(figures) == FIGURES | PEERS
    assert all(isinstance(figures[name], float) and math.isfinite(figures[name]) for name in FIGURES)
    assert all(figures[name] is None and report["reasons"][name] for name in PEERS)
    assert 0 < figures["overhead_share_32"] < 1
    assert set(report["model"]["scales"]) == {case["name"] for case in report["cases"]}
