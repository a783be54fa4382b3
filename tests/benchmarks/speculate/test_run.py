"""The benchmark of speculation measures every figure on a tiny model, and draws a chart."""

import math
from pathlib import Path
from xml.etree import ElementTree

from tests.bench.reports import report_of
from tests.stories import stories_gguf

FIGURES = {"speedup_edit_1", "speedup_edit_8", "speedup_chat_1", "speedup_chat_32", "tokens_per_pass_edit"}
PEERS = {
    f"{figure}_{load}"
    for peer in ("llamacpp", "openvino", "vllm")
    for figure in (f"{peer}_speedup", f"vs_{peer}")
    for load in ("edit_1", "edit_8", "chat_1")
}


def test_every_figure_is_measured(tmp_path: Path) -> None:
    svg = tmp_path / "plot.svg"
    report = report_of("speculate", str(stories_gguf()), "--svg", str(svg), seconds=12, wanted=FIGURES)
    figures = report["figures"]
    assert set(figures) == FIGURES | PEERS
    assert all(isinstance(figures[name], float) and math.isfinite(figures[name]) for name in FIGURES)
    assert all(figures[name] is None and report["reasons"][name] for name in PEERS)
    assert figures["tokens_per_pass_edit"] >= 1
    assert {case["name"] for case in report["cases"]} == {
        f"{kind}/{way}" for kind in ("edit/1", "edit/8", "chat/1", "chat/32") for way in ("on", "off")
    }
    assert {cost["num_requests"] for cost in report["model"]["costs"]} == {1, 8}
    lines = ElementTree.fromstring(svg.read_text()).findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == sum(cost["depth"] > 0 for cost in report["model"]["costs"])
