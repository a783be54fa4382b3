"""Parts that all reports share: tables, the machine's limits, figures with their targets, notes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.timing import Measurement, share
from surefoot.machine.cpu_usage import MAX_OTHERS_SHARE


def make_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def cases_of(results: BenchResults, kind: str, engine: str | None = "surefoot") -> list[Measurement]:
    return [m for m in results.measurements.values() if m.case.kind == kind and engine in (None, m.case.engine)]


def model_parts(results: BenchResults, *times: Table) -> Iterable[RenderableType]:
    yield limits(results)
    yield from times
    yield figures(results)
    yield from notes(results)


def limits(results: BenchResults) -> Table:
    facts = results.machine
    table = make_table(f"Limits with {facts['threads']} threads", "limit", "best", "median", "samples")
    for m in cases_of(results, "limit"):
        amount, unit = (m.case.bytes / 1e9, "GB/s") if m.case.bytes else (m.case.operations / 1e12, "TOPS")
        table.add_row(
            m.case.name.replace("_", " "),
            _rate(amount, m.best, unit),
            _rate(amount, m.median, unit),
            str(len(m.samples)),
        )
    return table


def figures(results: BenchResults) -> Table:
    """A table of all figures, except comparisons with absent peers, which the notes mention once."""
    table = Table(title="Figures", title_justify="left", title_style="bold")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    disturbed, absent = is_disturbed(results), {*results.absent.values()}
    for figure in (figure for figure in results.figures if figure.reason not in absent):
        verdict = {True: "[green]met[/green]", False: "[red]not met[/red]", None: ""}[figure.met]
        if disturbed and verdict:
            verdict += " [yellow]?[/yellow]"
        measured = "[dim]not measured[/dim]" if figure.value is None else f"[bold]{_number(figure.value)}[/bold]"
        table.add_row(figure.meaning, measured, str(figure.target or ""), verdict)
    return table


def notes(results: BenchResults) -> Iterable[Text]:
    facts = results.machine
    before, after = (facts[key][0] for key in ("load_before", "load_after"))
    yield Text(
        f"{facts['cpu']}, variant {facts['variant']}, {facts['threads']} threads, {facts['seconds']:.0f} s; "
        f"load {before:.1f} before and {after:.1f} after (our own included)"
    )
    for name, described in results.peers.items():
        yield Text(f"{name}: " + "; ".join(f"{key}: {_plain(value)}" for key, value in described.items()))
    for name, reason in results.absent.items():
        yield Text(f"{name}: {reason}")
    for reason in sorted({figure.reason for figure in results.figures if figure.reason} - {*results.absent.values()}):
        names = [figure.name for figure in results.figures if figure.reason == reason]
        yield Text(f"{reason}: {', '.join(names)}")
    if is_disturbed(results):
        share_of_others = f"{facts['others_cpu_share']:.0%}"
        yield Text(
            f"Other programs took {share_of_others} of the processors during the run. Engines whose threads wait for "
            "each other by spinning (the peers) lose most by this: measure again on a quiet machine.",
            "yellow",
        )


def is_disturbed(results: BenchResults) -> bool:
    return float(results.machine["others_cpu_share"]) > MAX_OTHERS_SHARE


def model_title(model: Mapping[str, Any]) -> str:
    return f"{model['path']}: {model['family']}, {model['layers']} layers; loaded in {model['load_seconds']:.1f} s"


def title(measurement: Measurement) -> str:
    return ", ".join(measurement.case.name.split("/"))


def share_of(parts: Sequence[Measurement], gauge: str) -> str:
    value = share(parts, gauge)
    return "" if value is None else f"{value:.0%}"


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _rate(amount: float, seconds: float | None, unit: str) -> str:
    return f"{amount / seconds:.2f} {unit}" if seconds else ""
