"""The benchmark of streams beside the bare engine measures its figure on a tiny model."""

from tests.bench.reports import report_of
from tests.stories import stories_gguf


def test_every_figure_is_measured() -> None:
    report = report_of("streams", str(stories_gguf()), seconds=6, wanted=["served_over_bare"])
    assert 0.1 < report["figures"]["served_over_bare"] < 1.5
