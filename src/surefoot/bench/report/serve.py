"""`surefoot bench serve` as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.model_results import ModelResults
from surefoot.bench.report.parts import figures, make_table, model_title, notes, title


def show_serve(results: ModelResults, console: Console) -> None:
    tables = _streams(results), _points(results.model["points"]), figures(results)
    console.print(Group(*tables, *notes(results)))


def _streams(results: ModelResults) -> Table:
    table = make_table(model_title(results.model), "case", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0))
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(title(m), f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table


def _points(points: Sequence[Mapping[str, Any]]) -> Table:
    """As of outcomes.Point."""
    heading = "Requests that arrive at random, a second; ms until the first text and between texts"
    table = make_table(
        heading, "engine", "arrive", "good", "tokens", "first, 50 and 95 %", "gap, 50 and 99 %", "failed"
    )
    for one in points:
        rates = [f"{one[name]:.4g}" for name in ("rate", "goodput", "tokens_per_second")]
        waits = [_pair(one["ttft_p50_s"], one["ttft_p95_s"]), _pair(one["gap_p50_s"], one["gap_p99_s"])]
        table.add_row(one["engine"], *rates, *waits, f"{one['num_failed']} of {one['num_requests']}")
    return table


def _pair(usual: float | None, most: float | None) -> str:
    return "" if usual is None or most is None else f"{1000 * usual:,.0f}  {1000 * most:,.0f}"
