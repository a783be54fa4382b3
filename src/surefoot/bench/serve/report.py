"""The results of `surefoot bench serve` as tables and as a chart."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, model_title, notes, title
from surefoot.charts.lines import line_plot
from surefoot.charts.svg import Points, Spreads


def show_serve(results: BenchResults, console: Console) -> None:
    tables = streams_table(results), _points(results.model["points"]), figures(results)
    console.print(Group(*tables, *notes(results)))


def goodput_plot(model: Mapping[str, Any]) -> str:
    """A chart of goodput over arrival rate, as SVG. model: `BenchResults.model` of a serving benchmark."""
    title = f"{model['path']}: requests/s with first text within 2 s, gaps within 200 ms"
    lines, spreads = goodput_lines(model["points"])
    return line_plot(title, "requests that arrive a second", "good requests a second", lines, spreads)


def goodput_lines(points: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Points], Mapping[str, Spreads]]:
    """Of each engine: its median goodput at each rate, and the least and the largest of the rounds."""
    rounds: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        rounds[point["engine"]][point["rate"]].append(point["goodput"])
    lines = {name: [(rate, median(values)) for rate, values in rates.items()] for name, rates in rounds.items()}
    spreads = {
        name: [(rate, min(values), max(values)) for rate, values in rates.items()] for name, rates in rounds.items()
    }
    return lines, spreads


def streams_table(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0))
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(title(m), f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table


def _points(points: Sequence[Mapping[str, Any]]) -> Table:
    """A table with a row for each LoadPoint. points: LoadPoints as dicts."""
    heading = "Requests that arrive at random, a second; ms until the first text and between texts"
    table = make_table(
        heading, "engine", "arrive", "good", "tokens", "first, 50 and 95 %", "gap, 50 and 99 %", "failed"
    )
    for point in points:
        rates = [f"{point[name]:.4g}" for name in ("rate", "goodput", "tokens_per_second")]
        waits = [_pair(point["ttft_p50_s"], point["ttft_p95_s"]), _pair(point["gap_p50_s"], point["gap_p99_s"])]
        table.add_row(point["engine"], *rates, *waits, f"{point['num_failed']} of {point['num_requests']}")
    return table


def _pair(median: float | None, high: float | None) -> str:
    """Two percentiles in ms."""
    return "" if median is None or high is None else f"{1000 * median:,.0f}  {1000 * high:,.0f}"
