"""A small fleet in simulated time: what the router reaches beside an oracle and beside other policies."""

import functools
from dataclasses import replace

import pytest

from benchmarks.fleet.simulation.policies import AffinityPolicy, OraclePolicy, PredictedPolicy, RoundRobinPolicy
from benchmarks.fleet.simulation.routing import FleetShape, SimulatedFigures, Simulation
from surefoot.fleet.prefix_index import PrefixIndex

SHAPE = FleetShape(num_replicas=12, num_users=1500, duration_s=500.0, replica_blocks=4000)


@functools.cache
def run(name: str, shape: FleetShape = SHAPE) -> SimulatedFigures:
    trees = PrefixIndex()
    predicted = PredictedPolicy(shape)
    policies = {
        "predicted": predicted,
        "oracle": OraclePolicy(shape, trees),
        "round robin": RoundRobinPolicy(),
        "affinity": AffinityPolicy(),
    }
    return Simulation(shape, policies[name], trees, predicted.router if name == "predicted" else None).run()


def test_nearly_all_that_an_oracle_finds_is_found() -> None:
    assert run("oracle").hit_rate > 0.5
    assert run("predicted").hit_rate >= 0.95 * run("oracle").hit_rate


def test_more_is_found_than_by_round_robin() -> None:
    assert run("predicted").hit_rate > 1.3 * run("round robin").hit_rate


@pytest.mark.parametrize("name", ["predicted", "oracle", "round robin", "affinity"])
def test_every_policy_gets_the_same_questions(name: str) -> None:
    figures = run(name)
    assert figures.num_requests > SHAPE.num_users
    assert 0 < figures.hit_rate < 1
    assert min(figures.first_token_s) > 0


def test_a_hot_document_keeps_no_replica_idle() -> None:
    hot = replace(SHAPE, hot_share=0.7, num_users=3000, turns=2)
    ours, affinity = run("predicted", hot), run("affinity", hot)
    assert ours.num_waits_beside_idle < 0.05 * ours.num_requests
    assert sorted(ours.first_token_s)[-100] < sorted(affinity.first_token_s)[-100]


def test_reports_are_counted() -> None:
    figures = run("predicted")
    assert figures.num_reports > SHAPE.num_replicas * SHAPE.duration_s * 0.9
    assert figures.num_names > figures.num_requests
