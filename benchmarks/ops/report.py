"""The results of `python -m benchmarks ops` as tables."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.ops.settings import OpsSettings
from benchmarks.ops.shapes import ModelShape
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import cases_of, figures, limits, make_table, notes, share_of, title
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK, Measurement


def show_ops(settings: OpsSettings, results: BenchResults, console: Console) -> None:
    console.print(Group(*_parts(results, settings)))


def _parts(results: BenchResults, settings: OpsSettings) -> Iterable[RenderableType]:
    yield limits(results)
    for model in settings.models:
        yield _linear(results, settings, model.name)
    yield _attention(results)
    yield _peers(results, settings)
    yield _overhead(results)
    yield figures(results)
    yield from notes(results)


def _linear(results: BenchResults, settings: OpsSettings, model: str) -> Table:
    """A table with a line for each row count and format. Times are totals over the four matrices of a layer."""
    table = make_table(
        f"Integer matmul: the matrices of one layer of {model}",
        "format", "limbs", "rows", "best ms", "median", "GB/s", "of limit", "TOPS", "of peak",
    )  # fmt: skip
    own = [m for m in cases_of(results, "linear") if m.case.labels["model"] == model]
    for fmt in settings.formats:
        for limbs in (2, 1):
            for rows in settings.rows:
                wanted = {"format": fmt, "limbs": limbs, "rows": rows}
                parts = [m for m in own if wanted.items() <= m.case.labels.items()]
                table.add_row(fmt, str(limbs), f"{rows:,}", *_speeds(parts))
            table.add_section()
    return table


def _speeds(parts: Sequence[Measurement]) -> list[str]:
    """ms, GB/s and TOPS of calling each part once, with shares of the limits."""
    if not all(part.samples for part in parts):
        return ["not measured", *[""] * 5]
    best, median = (sum(getattr(p, which) for p in parts) for which in ("best", "median"))
    nbytes, operations = sum(p.case.bytes for p in parts), sum(p.case.operations for p in parts)
    return [
        f"{best * 1e3:.3f}", f"{median * 1e3:.3f}", f"{nbytes / median / 1e9:.1f}", share_of(parts, BANDWIDTH),
        f"{operations / median / 1e12:.2f}", share_of(parts, INT8_PEAK),
    ]  # fmt: skip


def _attention(results: BenchResults) -> Table:
    table = make_table("Attention", "case", "best ms", "median", "GB/s", "of limit")
    for m in cases_of(results, "attention decode"):
        if m.samples:
            table.add_row(title(m), *_speeds([m])[:4])
    for m in cases_of(results, "layer"):
        if m.samples:
            table.add_row(title(m), *_speeds([m])[:2])
    return table


def _peers(results: BenchResults, settings: OpsSettings) -> RenderableType:
    """A table of milliseconds of a layer's four matrices in each engine, by row count."""
    foreign = [m.case for m in cases_of(results, "linear", None) if m.case.engine != "surefoot"]
    columns = sorted({(case.engine, str(case.labels["format"])) for case in foreign})
    if not columns:
        return Text("No peers took part.")
    model = settings.headline.name
    own: list[tuple[str, int]] = [("w8", 2), ("w8", 1), ("w4", 2)]
    table = make_table(
        f"Beside peers: one layer of {model}, median ms (ours with the quantising of the rows)",
        "rows", *(f"{fmt}, {limbs} limb{'s' * (limbs > 1)}" for fmt, limbs in own), *(f"{p} {f}" for p, f in columns),
    )  # fmt: skip
    for rows in settings.rows:
        ours = [_own_layer(results, settings.headline, fmt, limbs, rows) for fmt, limbs in own]
        theirs = [_layer_median(results, p, model=model, format=f, rows=rows) for p, f in columns]
        table.add_row(f"{rows:,}", *(_ms(value) for value in (*ours, *theirs)))
    return table


def _own_layer(results: BenchResults, model: ModelShape, fmt: str, limbs: int, rows: int) -> float | None:
    product = _layer_median(results, "surefoot", model=model.name, format=fmt, limbs=limbs, rows=rows)
    rounding = [
        m.median
        for _, k in model.matrices.values()
        for m in cases_of(results, "quantise")
        if {"k": k, "limbs": limbs, "rows": rows}.items() <= m.case.labels.items()
    ]
    return None if product is None or None in rounding else product + sum(value for value in rounding if value)


def _layer_median(results: BenchResults, engine: str, **labels: str | int) -> float | None:
    parts = [m.median for m in cases_of(results, "linear", engine) if labels.items() <= m.case.labels.items()]
    return None if not parts or None in parts else sum(part for part in parts if part)


def _overhead(results: BenchResults) -> Table:
    table = make_table("Calls from Python", "case", "best µs", "median µs", "calls")
    for m in (*cases_of(results, "call"), *cases_of(results, "step")):
        if m.samples and m.best and m.median:
            table.add_row(title(m), f"{m.best * 1e6:.1f}", f"{m.median * 1e6:.1f}", str(m.case.labels.get("calls", 1)))
    return table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
