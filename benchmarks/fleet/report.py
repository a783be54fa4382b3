"""`python -m benchmarks fleet` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, notes


def show_fleet(results: BenchResults, console: Console) -> None:
    tables = [_scale(results), _shares(results)] if "scale" in results.model else []
    console.print(Group(*tables, _policies(results), figures(results), *notes(results)))


def _policies(results: BenchResults) -> Table:
    simulated = results.model["simulated"]
    title = f"{simulated['num_requests']} simulated requests"
    table = make_table(title, "policy", "cached", "first token p50 s", "p99 s", "waits beside idle")
    for name, policy in simulated["policies"].items():
        table.add_row(
            name, f"{policy['hit_rate']:.3f}", f"{policy['first_token_s_p50']:.2f}",
            f"{policy['first_token_s_p99']:.2f}", f"{policy['waits_beside_idle']:.1%}",
        )  # fmt: skip
    return table


def _shares(results: BenchResults) -> Table:
    table = make_table(
        "A user who floods a busy fleet", "run", "the flood, of a fair share", "least of the others", "light users",
        "first token p50, p90 s",
    )  # fmt: skip
    for row in results.model["shares"]:
        table.add_row(
            row["label"], f"{row['flood_of_fair']:.2f}", f"{row['least_of_fair']:.2f}", f"{row['num_light']} requests",
            f"{row['light_first_token_s_p50']:.2f}, {row['light_first_token_s_p90']:.2f}",
        )  # fmt: skip
    return table


def _scale(results: BenchResults) -> Table:
    table = make_table(
        "One gateway as the fleet grows", "machines", "requests", "cached", "first token p50, p99 s",
        "decision p50, p99 µs", "report µs", "names kB/s", "blocks", "forget ms", "a core: routing", "a core: asking",
    )  # fmt: skip
    for row in results.model["scale"]:
        cells = f" in {row['num_routers']} cells" if row["num_routers"] > 1 else ""
        table.add_row(
            f"{row['num_replicas']}{cells}", str(row["num_requests"]), f"{row['hit_rate']:.3f}",
            f"{row['first_token_s_p50']:.2f}, {row['first_token_s_p99']:.2f}",
            f"{row['decision_us_p50']:.0f}, {row['decision_us_p99']:.0f}", f"{row['report_us']:.0f}",
            f"{row['name_bytes_per_s'] / 1000:.1f}", str(row["num_blocks"]), f"{row['forget_ms']:.0f}",
            f"{row['router_share']:.1%}", f"{row['poll_share']:.1%}",
        )  # fmt: skip
    return table
