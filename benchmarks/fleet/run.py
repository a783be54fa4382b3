"""Runs `python -m benchmarks fleet`: the router in simulated time, then real servers behind a gateway."""

import random
import statistics
from dataclasses import asdict, dataclass

from benchmarks.fleet.compare_routers import SimulatedFleet, simulate_fleet
from benchmarks.fleet.real import (
    NUM_WARM,
    RealRuns,
    measure_added_time,
    measure_survival,
    measure_throughput,
    running_fleet,
)
from benchmarks.fleet.scale import measure_scale
from benchmarks.fleet.shares import ShareRow, measure_shares
from benchmarks.fleet.simulation.routing import FleetShape
from benchmarks.fleet.simulation.shares import ShareShape
from surefoot.bench.harness.figures import Figure, Target, percentile
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.workloads import Task, ids

VOCAB = 512  # of the smallest model that is measured


@dataclass(frozen=True)
class FleetSettings:
    """How much is measured."""

    shape: FleetShape = FleetShape()  # noqa: RUF009
    num_first_tokens: int = 200  # requests of one user, at the server and at the gateway
    num_rounds: int = 6  # of 32 streams at once
    num_kills: int = 100
    num_servers: int = 3


QUICK = FleetSettings(
    FleetShape(num_users=12_000, duration_s=120.0, turns=3, think_s=20.0), 100, num_rounds=2, num_kills=3
)


def run_fleet(model: str, settings: FleetSettings, say: Say) -> BenchResults:
    run = RunFacts()
    say(f"simulating {settings.shape.num_replicas} replicas")
    simulated = simulate_fleet(settings.shape, say)
    runs = RealRuns()
    options = ("--max-running", "32", "--max-context", "1024")
    say("timing first tokens")
    with running_fleet(model, 1, *options) as fleet:
        tasks = [_task(number, 24, 4) for number in range(NUM_WARM + 2 * settings.num_first_tokens)]
        measure_added_time(fleet, tasks, runs)
        measure_throughput(fleet, [_task(number, 16, 24) for number in range(32)], settings.num_rounds, runs)
    with running_fleet(model, settings.num_servers, *options, "--threads", "1") as fleet:
        measure_survival(fleet, settings.num_kills, say, runs)
    described = {"path": model.rsplit("/", 1)[-1], "simulated": asdict(simulated), "kills": runs.num_kills}
    return BenchResults({}, fleet_figures(simulated, runs), described, {}, {}, run.facts())


def run_simulation(shape: FleetShape, say: Say, shares: ShareShape = ShareShape()) -> BenchResults:  # noqa: B008
    """The router alone, with no model and no server: every policy at full size, then what grows with the fleet. And
    users' shares of a busy fleet."""
    run = RunFacts()
    rows, whole = measure_scale(shape, say)
    simulated = simulate_fleet(shape, say, whole)
    share_rows = measure_shares(shares, say)
    described = {
        "path": "simulation",
        "simulated": asdict(simulated),
        "scale": [asdict(row) for row in rows],
        "shares": [{"label": row.label, **asdict(row)} for row in share_rows],
    }
    return BenchResults({}, [*router_figures(simulated), *share_figures(share_rows)], described, {}, {}, run.facts())


def _task(number: int, length: int, num_new: int) -> Task:
    return Task(ids(random.Random(number), length, VOCAB), num_new)


def fleet_figures(simulated: SimulatedFleet, runs: RealRuns) -> list[Figure]:
    ratios = [fleet / bare for bare, fleet in zip(runs.bare_tokens_per_s, runs.fleet_tokens_per_s, strict=True)]
    return [
        Figure(
            "streams_identical",
            "streams equal to an undisturbed server's, servers killed meanwhile",
            runs.num_identical / max(1, runs.num_streams),
            Target(1.0),
        ),
        Figure("added_ttft_ms_p50", "what the gateway adds to a first token", _added_ms(runs, 0.5), Target(5.0, False)),
        Figure("added_ttft_ms_p99", "the same, 99th percentile", _added_ms(runs, 0.99), Target(15.0, False)),
        Figure(
            "throughput_of_bare", "tokens a second of 32 streams, of the server's own", statistics.median(ratios),
            Target(0.97),
        ),
        Figure(
            "gateway_us_per_token", "processor time of the gateway for a streamed token, in microseconds",
            statistics.median(runs.gateway_us_per_token),
        ),
        *router_figures(simulated),
    ]  # fmt: skip


def router_figures(simulated: SimulatedFleet) -> list[Figure]:
    return [
        Figure(
            "hit_rate_of_oracle", "cached tokens, of those that an oracle finds (simulated)",
            simulated.hit_rate_of_oracle, Target(0.95),
        ),
        Figure(
            "router_us_p99_1000", "99th percentile of a decision's processor time, in microseconds",
            simulated.decision_us_p99, Target(200.0, False),
        ),
        Figure(
            "index_mb_per_million_blocks", "a gateway's memory for a million cached blocks, in MB",
            simulated.bytes_per_block,
        ),
        Figure(
            "report_bytes_per_s", "names of blocks that a replica reports, in bytes a second",
            simulated.report_bytes_per_s,
        ),
    ]  # fmt: skip


def share_figures(rows: list[ShareRow]) -> list[Figure]:
    calm, _, divided, _, pinned = rows
    return [
        Figure(
            "flood_of_fair_share", "what a user who floods gets, of an equal part (simulated)", divided.flood_of_fair,
            Target(1.25, False),
        ),
        Figure(
            "flood_of_fair_share_pinned", "the same where other users stay at one server each (simulated)",
            pinned.flood_of_fair,
        ),
        Figure(
            "light_ttft_of_calm", "light users' first tokens, median, of those without the flood (simulated)",
            divided.light_first_token_s_p50 / max(1e-9, calm.light_first_token_s_p50), Target(1.25, False),
        ),
    ]  # fmt: skip


def _added_ms(runs: RealRuns, share: float) -> float | None:
    """The difference of both sides' percentiles."""
    bare, fleet = percentile(runs.bare_ttft_s, share), percentile(runs.fleet_ttft_s, share)
    return None if bare is None or fleet is None else 1000 * (fleet - bare)
