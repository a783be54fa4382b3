"""The router at full size, in simulated time: a thousand replicas, beside an oracle and other policies."""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.fleet.simulation.policies import AffinityPolicy, OraclePolicy, PredictedPolicy, RoundRobinPolicy
from benchmarks.fleet.simulation.routing import FleetShape, Policy, SimulatedFigures, Simulation
from surefoot.bench.harness.figures import percentile
from surefoot.fleet.prefix_index import PrefixIndex

MEASURED_BLOCKS = 200_000  # of which the index's memory is measured
NAME_BYTES = 8


@dataclass(frozen=True)
class PolicyResult:
    """What a policy reached."""

    hit_rate: float
    first_token_s_p50: float
    first_token_s_p99: float
    waits_beside_idle: float  # share of requests that waited for a replica though another had nothing to do

    @classmethod
    def of(cls, figures: SimulatedFigures) -> "PolicyResult":
        times, waits = figures.first_token_s, figures.num_waits_beside_idle / max(1, figures.num_requests)
        return cls(figures.hit_rate, percentile(times, 0.5) or 0.0, percentile(times, 0.99) or 0.0, waits)


@dataclass(frozen=True)
class SimulatedFleet:
    """The router's figures."""

    num_requests: int
    policies: dict[str, PolicyResult]
    decision_us_p50: float
    decision_us_p99: float
    report_bytes_per_s: float  # of names, for each replica
    bytes_per_block: float  # in a gateway's memory

    @property
    def hit_rate_of_oracle(self) -> float:
        return self.policies["predicted"].hit_rate / max(1e-9, self.policies["oracle"].hit_rate)


@dataclass(frozen=True)
class PredictedRun:
    """A run of the fleet's own router."""

    figures: SimulatedFigures
    decision_s: list[float]  # processor time: not what other programs do meanwhile


def run_predicted(shape: FleetShape) -> PredictedRun:
    policy = PredictedPolicy(shape, time.thread_time)
    return PredictedRun(Simulation(shape, policy, PrefixIndex(), policy.router).run(), policy.decision_s)


def simulate_fleet(shape: FleetShape, say: Callable[[str], None], known: PredictedRun | None = None) -> SimulatedFleet:
    """known: a run of the router with this shape, if there was one."""
    predicted = known or run_predicted(shape)
    figures = predicted.figures
    trees = PrefixIndex()
    others: dict[str, tuple[Policy, PrefixIndex]] = {
        "oracle": (OraclePolicy(shape, trees), trees),
        "round robin": (RoundRobinPolicy(), PrefixIndex()),
        "prefix affinity with thresholds": (AffinityPolicy(), PrefixIndex()),
    }
    results = {"predicted": PolicyResult.of(figures)}
    for name, (policy, index) in others.items():
        say(f"simulating {shape.num_replicas} replicas: {name}")
        results[name] = PolicyResult.of(Simulation(shape, policy, index).run())
    times = predicted.decision_s
    return SimulatedFleet(
        figures.num_requests,
        results,
        1e6 * (percentile(times, 0.5) or 0.0),
        1e6 * (percentile(times, 0.99) or 0.0),
        figures.num_names * NAME_BYTES / (shape.num_replicas * shape.duration_s),
        index_bytes_per_block(),
    )


def index_bytes_per_block() -> float:
    tracemalloc.start()
    try:
        index = PrefixIndex()
        index.add(0, (number * 0x9E3779B97F4A7C15 % 2**64 for number in range(MEASURED_BLOCKS)))
        return tracemalloc.get_traced_memory()[0] / len(index)
    finally:
        tracemalloc.stop()
