"""`surefoot bench fleet` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.model_results import ModelResults
from surefoot.bench.harness.tables import figures, make_table, notes


def show_fleet(results: ModelResults, console: Console) -> None:
    console.print(Group(_policies(results), figures(results), *notes(results)))


def _policies(results: ModelResults) -> Table:
    simulated = results.model["simulated"]
    title = f"{simulated['num_requests']} simulated requests"
    table = make_table(title, "policy", "cached", "first token p50 s", "p99 s", "waits beside idle")
    for name, policy in simulated["policies"].items():
        table.add_row(
            name, f"{policy['hit_rate']:.3f}", f"{policy['first_token_s_p50']:.2f}",
            f"{policy['first_token_s_p99']:.2f}", f"{policy['waits_beside_idle']:.1%}",
        )  # fmt: skip
    return table
