"""`python -m benchmarks plan` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, model_title, notes


def show_plan(results: BenchResults, console: Console) -> None:
    console.print(Group(_beside(results), figures(results), *notes(results)))


def _beside(results: BenchResults) -> Table:
    """Each measurement beside its prediction."""
    table = make_table(model_title(results.model), "case", "predicted", "measured", "error")
    for case in results.model["compared"]:
        error = abs(case["predicted"] - case["measured"]) / case["measured"]
        table.add_row(case["name"], f"{case['predicted']:.4g}", f"{case['measured']:.4g}", f"{error:.0%}")
    return table


def show_users(results: BenchResults, console: Console) -> None:
    console.print(Group(_served(results), figures(results), *notes(results)))


def _served(results: BenchResults) -> Table:
    """Each number of users."""
    table = make_table(
        results.model["path"], "users", "answers", "in time", "predicted", "first token, s (95 %)", "tokens/s (95 %)"
    )
    for some in results.model["served"]:
        table.add_row(
            f"{some['num_users']}", f"{some['num_answers']}", f"{some['share']:.0%}", f"{some['predicted_share']:.0%}",
            f"{some['first_token_p95_s']:.3g}", f"{some['tokens_per_second_p5']:.3g}",
        )  # fmt: skip
    return table
