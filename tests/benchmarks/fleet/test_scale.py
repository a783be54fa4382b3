"""What changes with a fleet's size, on a fleet small enough for a test."""

import io

from rich.console import Console

from benchmarks.fleet.report import show_fleet
from benchmarks.fleet.run import run_simulation
from benchmarks.fleet.simulation.routing import FleetShape
from benchmarks.fleet.simulation.shares import ShareShape

SHARES = ShareShape(
    num_replicas=2, num_steady=2, num_light=2, flood_requests=20, pause_s=2.0, warm_up_s=2.0, duration_s=8.0
)
SHAPE = FleetShape(num_replicas=200, num_users=800, duration_s=40.0, think_s=5.0)


def test_every_size_is_simulated_and_shown() -> None:
    results = run_simulation(SHAPE, lambda text: None, SHARES)
    rows = results.model["scale"]
    assert [(row["num_replicas"], row["num_routers"]) for row in rows] == [(2, 1), (20, 1), (200, 1), (200, 2)]
    whole, cells = rows[2:]
    # The same users ask the same things; fewer machines of a cell answer them, and ask for less of a gateway.
    assert abs(cells["num_requests"] - whole["num_requests"]) < 0.1 * whole["num_requests"]
    assert cells["hit_rate"] > 0.9 * whole["hit_rate"] > 0
    assert cells["poll_share"] == whole["poll_share"] / 2
    assert all(row["name_bytes_per_s"] > 0 and row["report_us"] > 0 and row["num_blocks"] > 0 for row in rows)
    names = {figure.name for figure in results.figures}
    assert len(results.model["shares"]) == 5
    assert {"flood_of_fair_share", "light_ttft_of_calm"} <= names
    assert {"hit_rate_of_oracle", "router_us_p99_1000", "index_mb_per_million_blocks"} <= names
    text = io.StringIO()
    show_fleet(results, Console(file=text, width=250))
    assert "200 in 2 cells" in text.getvalue()
    assert "A user who floods a busy fleet" in text.getvalue()
