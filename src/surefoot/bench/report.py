"""The results as tables for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.bench.as_json import Results as AnyResults
from surefoot.bench.disturbance import MOST
from surefoot.bench.figures import Figure
from surefoot.bench.model_results import ModelResults
from surefoot.bench.ops import Results
from surefoot.bench.speculate_versus import KIND as SPECULATE_VERSUS
from surefoot.bench.step_profile import StepProfile
from surefoot.bench.timing import BANDWIDTH, INT8_PEAK, Measurement, share


def show(results: Results, console: Console) -> None:
    console.print(Group(*_parts(results)))


def show_model(results: ModelResults, console: Console) -> None:
    console.print(Group(*_model_parts(results, _model_speeds(results))))


def show_engine(results: ModelResults, console: Console) -> None:
    console.print(
        Group(
            *_model_parts(results, _engine_times(results), _step_profile(StepProfile(**results.model["step_profile"])))
        )
    )


def show_serve(results: ModelResults, console: Console) -> None:
    tables = _streams(results), _points(results.model["points"]), _figures(results.figures, _disturbed(results))
    console.print(Group(*tables, *_notes(results)))


def show_speculate(results: ModelResults, console: Console) -> None:
    console.print(Group(*_speculate_parts(results)))


def _speculate_parts(results: ModelResults) -> Iterable[RenderableType]:
    yield _draft_costs(results.model["costs"])
    yield _on_and_off(results)
    if results.peers:
        yield _speculate_versus(results)
    yield _figures(results.figures, _disturbed(results))
    yield from _notes(results)


def _draft_costs(costs: Sequence[Mapping[str, float]]) -> Table:
    table = _table("What drafts cost: a step, beside one without", "requests", "depth", "median ms", "of plain")
    plain = {cost["num_requests"]: cost["ms"] for cost in costs if cost["depth"] == 0}
    for cost in costs:
        share_of_plain = f"{cost['ms'] / plain[cost['num_requests']]:.2f}"
        table.add_row(str(cost["num_requests"]), str(cost["depth"]), f"{cost['ms']:.2f}", share_of_plain)
    return table


def _on_and_off(results: ModelResults) -> Table:
    table = _table(_model_title(results.model), "case", "best s", "median", "tokens a pass", "drafts right")
    for m in results.measurements.values():
        if m.case.kind in ("edit", "chat") and m.best and m.median:
            drafts = results.model["drafts"].get(f"{m.case.kind} {m.case.labels['requests']}")
            table.add_row(_title(m), f"{m.best:.3f}", f"{m.median:.3f}", *_drafts(drafts, str(m.case.labels["way"])))
    return table


def _speculate_versus(results: ModelResults) -> Table:
    table = _table("Beside peers", "case", "best tokens/s", "median")
    for m in _of(results, SPECULATE_VERSUS, engine=None):
        if m.best and m.median:
            table.add_row(_title(m), f"{1 / m.best:.1f}", f"{1 / m.median:.1f}")
    return table


def _drafts(used: Mapping[str, int] | None, way: str) -> tuple[str, str]:
    """Tokens a pass, and the share of drafts that were right."""
    if used is None or way == "off":
        return "", ""
    right = f"{used['num_accepted'] / used['num_drafted']:.0%}" if used["num_drafted"] else ""
    return f"{used['num_tokens'] / max(1, used['num_passes']):.2f}", right


def _model_parts(results: ModelResults, *times: Table) -> Iterable[RenderableType]:
    yield _limits(results)
    yield from times
    yield _figures(results.figures, _disturbed(results))
    yield from _notes(results)


def _model_title(model: Mapping[str, Any]) -> str:
    return f"{model['path']}: {model['family']}, {model['layers']} layers; loaded in {model['load_seconds']:.1f} s"


def _engine_times(results: ModelResults) -> Table:
    table = _table(_model_title(results.model), "case", "lengths", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.case.kind != "limit" and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0)) if m.case.kind in ("mix", "versus") else 0.0
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(_title(m), f"{m.case.labels['percent']} %", f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table


def _streams(results: ModelResults) -> Table:
    table = _table(_model_title(results.model), "case", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0))
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(_title(m), f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table


def _points(points: Sequence[Mapping[str, Any]]) -> Table:
    """As of outcomes.Point."""
    title = "Requests that arrive at random, a second; ms until the first text and between texts"
    table = _table(title, "engine", "arrive", "good", "tokens", "first, 50 and 95 %", "gap, 50 and 99 %", "failed")
    for one in points:
        rates = [f"{one[name]:.4g}" for name in ("rate", "goodput", "tokens_per_second")]
        waits = [_pair(one["ttft_p50_s"], one["ttft_p95_s"]), _pair(one["gap_p50_s"], one["gap_p99_s"])]
        table.add_row(one["engine"], *rates, *waits, f"{one['num_failed']} of {one['num_requests']}")
    return table


def _pair(usual: float | None, most: float | None) -> str:
    return "" if usual is None or most is None else f"{1000 * usual:,.0f}  {1000 * most:,.0f}"


def _step_profile(profile: StepProfile) -> Table:
    title = f"A step that decodes {profile.num_requests}: {profile.total * 1e3:.2f} ms"
    table = _table(title, "part", "µs", "share")
    for name, seconds in profile.parts.items():
        table.add_row(name, f"{seconds * 1e6:,.0f}", f"{seconds / profile.total:.1%}")
    table.add_row("of sampling, native", f"{profile.sampling_native * 1e6:,.0f}", "")
    return table


def _model_speeds(results: ModelResults) -> Table:
    table = _table(_model_title(results.model), "case", "best tokens/s", "median", "of limit")
    for m in results.measurements.values():
        if m.case.kind in ("prefill", "decode") and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 1))
            gauge = INT8_PEAK if m.case.operations else BANDWIDTH
            limit = _share([m], gauge) if m.case.engine == "surefoot" else ""
            table.add_row(_title(m), f"{tokens / m.best:,.1f}", f"{tokens / m.median:,.1f}", limit)
    return table


def _parts(results: Results) -> Iterable[RenderableType]:
    yield _limits(results)
    for model in results.settings.models:
        yield _linear(results, model.name)
    yield _attention(results)
    yield _peers(results)
    yield _overhead(results)
    yield _figures(results.figures, _disturbed(results))
    yield from _notes(results)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _of(results: AnyResults, kind: str, engine: str | None = "surefoot") -> list[Measurement]:
    return [m for m in results.measurements.values() if m.case.kind == kind and engine in (None, m.case.engine)]


def _limits(results: AnyResults) -> Table:
    facts = results.machine
    table = _table(f"Limits with {facts['threads']} threads", "limit", "best", "median", "samples")
    for m in _of(results, "limit"):
        amount, unit = (m.case.bytes / 1e9, "GB/s") if m.case.bytes else (m.case.operations / 1e12, "TOPS")
        table.add_row(
            m.case.name.replace("_", " "),
            _rate(amount, m.best, unit),
            _rate(amount, m.median, unit),
            str(len(m.samples)),
        )
    return table


def _linear(results: Results, model: str) -> Table:
    """One line per row count and format, over a layer's four matrices together."""
    table = _table(
        f"Integer matmul: the matrices of one layer of {model}",
        "format", "limbs", "rows", "best ms", "median", "GB/s", "of limit", "TOPS", "of peak",
    )  # fmt: skip
    own = [m for m in _of(results, "linear") if m.case.labels["model"] == model]
    for fmt in results.settings.formats:
        for limbs in (2, 1):
            for rows in results.settings.rows:
                wanted = {"format": fmt, "limbs": limbs, "rows": rows}
                parts = [m for m in own if wanted.items() <= m.case.labels.items()]
                table.add_row(fmt, str(limbs), f"{rows:,}", *_speeds(parts))
            table.add_section()
    return table


def _speeds(parts: Sequence[Measurement]) -> list[str]:
    """ms, GB/s and TOPS of one call of each, with the shares of the limits."""
    if not all(part.samples for part in parts):
        return ["not measured", *[""] * 5]
    best, median = (sum(getattr(p, which) for p in parts) for which in ("best", "median"))
    nbytes, operations = sum(p.case.bytes for p in parts), sum(p.case.operations for p in parts)
    return [
        f"{best * 1e3:.3f}", f"{median * 1e3:.3f}", f"{nbytes / median / 1e9:.1f}", _share(parts, BANDWIDTH),
        f"{operations / median / 1e12:.2f}", _share(parts, INT8_PEAK),
    ]  # fmt: skip


def _attention(results: Results) -> Table:
    table = _table("Attention", "case", "best ms", "median", "GB/s", "of limit")
    for m in _of(results, "attention decode"):
        if m.samples:
            table.add_row(_title(m), *_speeds([m])[:4])
    for m in _of(results, "layer"):
        if m.samples:
            table.add_row(_title(m), *_speeds([m])[:2])
    return table


def _peers(results: Results) -> RenderableType:
    """Milliseconds of a layer's four matrices in each engine, at each row count."""
    peers = sorted({m.case.engine for m in _of(results, "linear", None)} - {"surefoot"})
    columns = [(p, f) for p in peers for f in sorted({str(m.case.labels["format"]) for m in _of(results, "linear", p)})]
    if not columns:
        return Text("No peers took part.")
    model = results.settings.headline.name
    own: list[tuple[str, int]] = [("w8", 2), ("w8", 1), ("w4", 2)]
    table = _table(
        f"Beside peers: one layer of {model}, median ms (ours with the quantising of the rows)",
        "rows", *(f"{fmt}, {limbs} limb{'s' * (limbs > 1)}" for fmt, limbs in own), *(f"{p} {f}" for p, f in columns),
    )  # fmt: skip
    for rows in results.settings.rows:
        ours = [_own_layer(results, fmt, limbs, rows) for fmt, limbs in own]
        theirs = [_layer_median(results, p, model=model, format=f, rows=rows) for p, f in columns]
        table.add_row(f"{rows:,}", *(_ms(value) for value in (*ours, *theirs)))
    return table


def _own_layer(results: Results, fmt: str, limbs: int, rows: int) -> float | None:
    model = results.settings.headline
    product = _layer_median(results, "surefoot", model=model.name, format=fmt, limbs=limbs, rows=rows)
    rounding = [
        m.median
        for _, k in model.matrices.values()
        for m in _of(results, "quantise")
        if {"k": k, "limbs": limbs, "rows": rows}.items() <= m.case.labels.items()
    ]
    return None if product is None or None in rounding else product + sum(value for value in rounding if value)


def _layer_median(results: Results, engine: str, **labels: str | int) -> float | None:
    parts = [m.median for m in _of(results, "linear", engine) if labels.items() <= m.case.labels.items()]
    return None if not parts or None in parts else sum(part for part in parts if part)


def _overhead(results: Results) -> Table:
    table = _table("Calls from Python", "case", "best µs", "median µs", "calls")
    for m in (*_of(results, "call"), *_of(results, "step")):
        if m.samples and m.best and m.median:
            table.add_row(_title(m), f"{m.best * 1e6:.1f}", f"{m.median * 1e6:.1f}", str(m.case.labels.get("calls", 1)))
    return table


def _disturbed(results: AnyResults) -> bool:
    return float(results.machine["others_cpu_share"]) > MOST


def _figures(figures: Sequence[Figure], disturbed: bool) -> Table:
    table = Table(title="Figures", title_justify="left", title_style="bold")
    table.add_column("figure")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for figure in figures:
        verdict = {True: "[green]met[/green]", False: "[red]not met[/red]", None: ""}[figure.met]
        if disturbed and verdict:
            verdict += " [yellow]?[/yellow]"
        measured = "[dim]not measured[/dim]" if figure.value is None else f"[bold]{_number(figure.value)}[/bold]"
        table.add_row(figure.meaning, measured, str(figure.target or ""), verdict)
    return table


def _notes(results: AnyResults) -> Iterable[Text]:
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
    if _disturbed(results):
        share_of_others = f"{facts['others_cpu_share']:.0%}"
        yield Text(
            f"Other programs took {share_of_others} of the processors during the run. Engines whose threads wait for "
            "each other by spinning (the peers) lose most by this: measure again on a quiet machine.",
            "yellow",
        )


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _title(measurement: Measurement) -> str:
    return ", ".join(measurement.case.name.split("/"))


def _share(parts: Sequence[Measurement], gauge: str) -> str:
    value = share(parts, gauge)
    return "" if value is None else f"{value:.0%}"


def _rate(amount: float, seconds: float | None, unit: str) -> str:
    return f"{amount / seconds:.2f} {unit}" if seconds else ""


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
