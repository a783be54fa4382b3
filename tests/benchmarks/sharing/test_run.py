"""Two models on the same cores: that every figure comes, and what figures say."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.sharing.arrangements import SHARED, Arrangement, fixed_splits, unshared
from benchmarks.sharing.load import PairLoad
from benchmarks.sharing.run import SharingRuns, sharing_figures
from tests.stories import stories_gguf


def test_every_figure_comes() -> None:
    """Real servers, a real front; the same file twice."""
    model = str(stories_gguf())
    result = CliRunner().invoke(
        app, ["models", model, model, "--json", "--quick", "--threads", "1"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["figures"]["answers_identical"] == 1
    assert report["figures"]["even_of_best_split"] > 0
    assert report["figures"]["uneven_of_unshared"] > 0
    assert set(report["model"]["seconds"]["uneven"]) == {"1+1", "shared"}


@pytest.mark.parametrize(
    ("num_cores", "names"),
    [
        (1, ["1+1"]),
        (2, ["1+1"]),
        (4, ["1+3", "2+2", "3+1"]),
        (16, ["1+15", "4+12", "7+9", "10+6", "13+3"]),
    ],
)
def test_splits(num_cores: int, names: list[str]) -> None:
    assert [split.name for split in fixed_splits(num_cores)] == names


def test_figures() -> None:
    """Best of all rounds; one answer of sixteen differs."""
    load, runs = PairLoad("even", (1, 1), 4), SharingRuns()
    times = {
        Arrangement((1, 2)): (5.0, 6.0),
        Arrangement((2, 1)): (4.0, 9.0),
        unshared(3): (3.0, 3.0),
        SHARED: (8.0, 5.0),
    }
    for arrangement, (first, second) in times.items():
        runs.add(load, arrangement, first, ["a", "b"])
        runs.add(load, arrangement, second, ["a", "x" if arrangement is SHARED else "b"])
    figures = {figure.name: figure for figure in sharing_figures(runs, fixed_splits(3), unshared(3))}
    assert figures["even_of_best_split"].value == pytest.approx(0.8)
    assert not figures["even_of_best_split"].met
    assert figures["even_of_unshared"].value == pytest.approx(0.6)
    assert figures["answers_identical"].value == 15 / 16
