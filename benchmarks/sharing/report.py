"""`python -m benchmarks models` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, notes


def show_sharing(results: BenchResults, console: Console) -> None:
    console.print(Group(_times(results), figures(results), *notes(results)))


def _times(results: BenchResults) -> Table:
    facts = results.model
    title = f"{' and '.join(facts['paths'])} on {facts['cores']} cores: seconds until all is answered"
    table = make_table(title, "load", "threads", "best", "all rounds")
    for load, arrangements in facts["seconds"].items():
        for name, seconds in arrangements.items():
            table.add_row(load, name, f"{min(seconds):.2f}", " ".join(f"{second:.2f}" for second in seconds))
    return table
