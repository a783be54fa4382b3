"""Public figures come from docs/results, and pages agree with them."""

import re
from dataclasses import replace
from datetime import date
from math import isfinite
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, script

results = script("results")
ALL = results.read_results()
ROW = re.compile(r"^\|(?!---)(.*)\|$", re.MULTILINE)
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?!\w)")


def measured(**changes: object) -> object:
    figure = results.MeasuredFigure((1.2, 1.4, 1.9), at_least=1.3)
    code = ("docs/make/results.py",)
    result = results.Result(
        "what", "command", "0000000", "2026-11-18", "B", code, results.digest_of_code(code), {"ratio": figure}
    )
    return replace(result, **changes)


def test_pages_have_the_figures_of_the_results() -> None:
    assert list(results.differences(ALL)) == [], "run python docs/make/results.py"


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_every_decimal_in_a_table_names_its_source(page: str) -> None:
    """The first column says what a row is, with its aim."""
    cells = [cell for row in ROW.findall((ROOT / page).read_text()) for cell in row.split("|")[1:]]
    assert [cell for cell in cells if DECIMAL.search(results.FILLED.sub("", cell))] == []


def test_every_row_of_measurements_on_the_first_page_has_a_source() -> None:
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## How fast") : text.index('## What "exact"')]
    assert [row for row in ROW.findall(section)[1:] if "<!--" not in row] == []


@pytest.mark.parametrize("name", ALL)
def test_a_result_says_how_when_and_where_it_was_measured(name: str) -> None:
    result = ALL[name]
    assert result.what
    assert result.command
    assert re.fullmatch("[0-9a-f]{7,40}", result.commit)
    assert date.fromisoformat(result.date)
    assert result.machine in results.read_machines()
    assert result.code
    assert result.figures
    assert all(figure.values and all(map(isfinite, figure.values)) for figure in result.figures.values())


def test_the_page_describes_the_machines_as_the_results_do() -> None:
    rows = [row.split("|") for row in ROW.findall((ROOT / "docs/benchmarks.md").read_text())]
    described = {cells[0].strip(): cells[1].strip() for cells in rows if re.fullmatch(" [A-Z] ", cells[0])}
    assert described == results.read_machines()


def test_a_figure_is_written_with_its_source() -> None:
    page = "0<!--run.ratio--> (0<!--run.ratio.low--> to 0<!--run.ratio.high-->, 0<!--run.ratio.samples--> rounds)"
    filled = (
        "1.4<!--run.ratio--> (1.2<!--run.ratio.low--> to 1.9<!--run.ratio.high-->, 3<!--run.ratio.samples--> rounds)"
    )
    assert results.fill(page, {"run": measured()}) == filled
    assert results.fill(filled, {"run": measured()}) == filled


def test_a_figure_that_misses_its_aim_is_bold() -> None:
    missed = results.MeasuredFigure((0.9,), at_least=1)
    assert results.fill("2<!--run.ratio-->", {"run": measured(figures={"ratio": missed})}) == "**0.9**<!--run.ratio-->"


def test_a_figure_whose_code_has_changed_is_marked() -> None:
    assert results.fill("1.4<!--run.ratio-->", {"run": measured(code_digest="other")}) == "1.4†<!--run.ratio-->"


def test_a_figure_that_no_result_holds_is_an_error() -> None:
    with pytest.raises(KeyError):
        results.fill("1.4<!--run.other-->", {"run": measured()})


def test_a_result_is_written_and_read_without_loss(tmp_path: Path) -> None:
    result = measured(note="quiet", details={"points": [{"rate": 1.5}]})
    result.write(tmp_path / "run.json")  # type: ignore[attr-defined]
    assert results.Result.read(tmp_path / "run.json") == result
