"""The results of `python -m benchmarks speculate` as tables."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table

from benchmarks.speculate.versus import KIND as SPECULATE_VERSUS
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import cases_of, figures, make_table, model_title, notes, title


def show_speculate(results: BenchResults, console: Console) -> None:
    console.print(Group(*_speculate_parts(results)))


def _speculate_parts(results: BenchResults) -> Iterable[RenderableType]:
    yield _draft_costs(results.model["costs"])
    yield _on_and_off(results)
    if results.peers:
        yield _speculate_versus(results)
    yield figures(results)
    yield from notes(results)


def _draft_costs(costs: Sequence[Mapping[str, float]]) -> Table:
    table = make_table("What drafts cost: a step, beside one without", "requests", "depth", "median ms", "of plain")
    plain = {cost["num_requests"]: cost["ms"] for cost in costs if cost["depth"] == 0}
    for cost in costs:
        share_of_plain = f"{cost['ms'] / plain[cost['num_requests']]:.2f}"
        table.add_row(str(cost["num_requests"]), str(cost["depth"]), f"{cost['ms']:.2f}", share_of_plain)
    return table


def _on_and_off(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "best s", "median", "tokens a pass", "drafts right")
    for m in results.measurements.values():
        if m.case.kind in ("edit", "chat") and m.best and m.median:
            drafts = results.model["drafts"].get(f"{m.case.kind} {m.case.labels['requests']}")
            table.add_row(title(m), f"{m.best:.3f}", f"{m.median:.3f}", *_drafts(drafts, str(m.case.labels["way"])))
    return table


def _speculate_versus(results: BenchResults) -> Table:
    table = make_table("Beside peers", "case", "best tokens/s", "median")
    for m in cases_of(results, SPECULATE_VERSUS, engine=None):
        if m.best and m.median:
            table.add_row(title(m), f"{1 / m.best:.1f}", f"{1 / m.median:.1f}")
    return table


def _drafts(used: Mapping[str, int] | None, way: str) -> tuple[str, str]:
    """Tokens per pass, and the acceptance rate."""
    if used is None or way == "off":
        return "", ""
    right = f"{used['num_accepted'] / used['num_drafted']:.0%}" if used["num_drafted"] else ""
    return f"{used['num_tokens'] / max(1, used['num_passes']):.2f}", right
