"""The benchmark of threads measures its figure on a tiny model."""

import math

from tests.bench.reports import report_of
from tests.stories import stories_gguf


def test_every_figure_is_measured() -> None:
    report = report_of("threads", str(stories_gguf()), seconds=8, wanted=["one_core_of_best"])
    assert math.isfinite(report["figures"]["one_core_of_best"])
    assert report["model"]["one_core_by"] in ("quota", "affinity")
