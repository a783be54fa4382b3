"""The results of `surefoot bench model` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import make_table, model_parts, model_title, share_of, title
from surefoot.bench.harness.timing import BANDWIDTH, INT8_PEAK


def show_model(results: BenchResults, console: Console) -> None:
    console.print(Group(*model_parts(results, _model_speeds(results))))


def _model_speeds(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "best tokens/s", "median", "of limit")
    for m in results.measurements.values():
        if m.case.kind in ("prefill", "decode", "batch") and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", m.case.labels.get("requests", 1)))
            gauge = INT8_PEAK if m.case.operations else BANDWIDTH
            limit = share_of([m], gauge) if m.case.engine == "surefoot" else ""
            table.add_row(title(m), f"{tokens / m.best:,.1f}", f"{tokens / m.median:,.1f}", limit)
    return table
