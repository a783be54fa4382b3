"""What the lessons' scripts share: arguments, a table, a plot, a best time, and this machine's predicted step times."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from surefoot.api.opening import open_model
from surefoot.charts.lines import line_plot
from surefoot.plan.machines import measure_machine
from surefoot.plan.subject import plan_model
from surefoot.speed.step_time import PredictedSteps

Lines = Mapping[str, Sequence[tuple[float, float]]]


def arguments(doc: str | None, words: Sequence[str] | None, model: bool = True) -> argparse.Namespace:
    """MODEL if wanted, --quick, --svg and --threads."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    if model:
        parser.add_argument("model")
    parser.add_argument("--quick", action="store_true", help="a small form, of seconds")
    parser.add_argument("--svg", type=Path, help="write the plot")
    parser.add_argument("--threads", type=int)
    return parser.parse_args(words)


def predicted_steps(model: str, threads: int | None, quick: bool) -> PredictedSteps:
    """Times of the model's steps on this machine, from its header and some seconds of measured kernels."""
    sized = plan_model(open_model(model))
    return PredictedSteps(sized.work, measure_machine(sized, None, threads, 0.2 if quick else 10).rates)


def best_seconds(run: Callable[[], object], rounds: int) -> float:
    """The best of several rounds after one that warms up: other programs can only make it slower."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def show(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table in Markdown."""
    for cells in (headings, ["---"] * len(headings), *rows):
        print("|", " | ".join(f"{cell:.3g}" if isinstance(cell, float) else f"{cell}" for cell in cells), "|")


def draw(svg: Path | None, title: str, x: str, y: str, lines: Lines) -> None:
    if svg is not None:
        svg.write_text(line_plot(title, x, y, lines))
