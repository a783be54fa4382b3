"""`surefoot bench plan` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.model_results import ModelResults
from surefoot.bench.harness.tables import figures, make_table, model_title, notes


def show_plan(results: ModelResults, console: Console) -> None:
    console.print(Group(_beside(results), figures(results), *notes(results)))


def _beside(results: ModelResults) -> Table:
    """Each measurement beside its prediction."""
    table = make_table(model_title(results.model), "case", "predicted", "measured", "error")
    for case in results.model["compared"]:
        error = abs(case["predicted"] - case["measured"]) / case["measured"]
        table.add_row(case["name"], f"{case['predicted']:.4g}", f"{case['measured']:.4g}", f"{error:.0%}")
    return table
