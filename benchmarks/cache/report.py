"""`python -m benchmarks cache` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, model_title, notes


def show_cache(results: BenchResults, console: Console) -> None:
    console.print(Group(_beside(results), figures(results), *notes(results)))


def _beside(results: BenchResults) -> Table:
    """Each figure beside its prediction."""
    tokens = results.model["prompt_tokens"]
    table = make_table(f"{model_title(results.model)}; prompts of {tokens} tokens", "figure", "measured", "predicted")
    for figure in results.figures:
        predicted = results.model["predictions"].get(figure.name)
        table.add_row(figure.name, f"{figure.value:.4g}", "" if predicted is None else f"{predicted:.4g}")
    return table
