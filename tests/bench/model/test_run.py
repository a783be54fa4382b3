"""`surefoot bench model` on tiny models measures every figure that needs no peer and fits into the context."""

import math
from pathlib import Path

from benchmarks.shapes.llama import TINY, write_folder
from surefoot.bench.harness.timing import BANDWIDTH, Case, Measurement, TimedSample
from surefoot.bench.model.figures import model_questions
from tests.bench.reports import report_of
from tests.stories import stories_gguf

LONG = {"prefill512_of_peak", "prefill2048_of_peak"}
FIGURES = LONG | {"decode_of_bandwidth", "decode32_step_ms", "python_overhead_share"}
PEERS = {"decode_vs_llamacpp", "prefill512_vs_llamacpp", "prefill2048_vs_llamacpp", "prefill8k_vs_llamacpp"}


def test_every_figure_is_measured(tmp_path: Path) -> None:
    write_folder(TINY, tmp_path, lambda text: None)
    report = report_of("model", str(tmp_path), seconds=6, wanted=FIGURES)
    figures = report["figures"]
    assert set(figures) == FIGURES | PEERS | {"decode_of_file_limit"}
    assert "floats" in report["reasons"]["decode_of_file_limit"]
    assert all(math.isfinite(figures[name]) and figures[name] > 0 for name in FIGURES)
    assert all(figures[name] is None and "--peers" in report["reasons"][name] for name in PEERS)
    assert {case["name"] for case in report["cases"]} == {
        "prefill/512", "prefill/2048", "decode/1", "decode/32",
    }  # fmt: skip


def test_a_short_context_leaves_long_prompts_out() -> None:
    report = report_of("model", str(stories_gguf()), seconds=3, wanted=FIGURES - LONG)
    assert {case["name"] for case in report["cases"]} == {"decode/1", "decode/32"}
    assert all(report["reasons"][name] == "not part of this run" for name in LONG)


def test_the_share_of_what_the_files_bytes_allow() -> None:
    """80 bytes are read in a second that allows 100. The file has half of them."""
    case = Case("decode/1", "decode", lambda: 1.0, bytes=80)
    measurements = {case.name: Measurement(case, (TimedSample(1, 1.0, {BANDWIDTH: 100}),))}
    questions = {question.name: question for question in model_questions(measurements, [], {}, "avx2", file_share=0.5)}
    assert questions["decode_of_bandwidth"].answer() == [0.8]
    assert questions["decode_of_file_limit"].answer() == [0.4]
