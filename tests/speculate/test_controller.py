"""Depths stay within bounds and pay; drafting stops and resumes as load and acceptance change."""

import random
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import BandMedians, SampleKey, StepCost
from surefoot.speculate import DepthController, DraftOffer
from surefoot.speculate.controller import (
    MAX_PROBE_INTERVAL,
    MIN_SPEEDUP,
    PROBE_DEPTH,
    PROBE_INTERVAL,
    AcceptanceEstimator,
    best_depths,
)
from tests.speculate.simulated_answers import Simulation

PROBABILITIES = st.lists(st.floats(0, 0.99), min_size=1, max_size=12)
INCREASES_MS = st.lists(st.floats(0, 5), min_size=30, max_size=30)


def rate(p: list[float], depths: list[int], num_tokens: int, step_ms: list[float], draft_ms: float) -> float:
    """Useful tokens per millisecond."""
    gain = sum(each**power for each, depth in zip(p, depths, strict=True) for power in range(1, depth + 1))
    return (num_tokens + gain) / (step_ms[sum(depths)] + draft_ms * max(depths))


@given(PROBABILITIES, INCREASES_MS, st.floats(0.1, 10), st.integers(0, 20), st.floats(0, 3), st.randoms())
def test_depths_pay(
    p: list[float],
    increases_ms: list[float],
    first_ms: float,
    num_others: int,
    draft_ms: float,
    rng: random.Random,
) -> None:
    step_ms = [first_ms]
    for increase_ms in increases_ms:
        step_ms.append(step_ms[-1] + increase_ms)
    limits = [rng.randint(0, 9) for _ in p]
    num_tokens = len(p) + num_others
    depths = best_depths(p, limits, num_tokens, step_ms, draft_ms)
    assert all(0 <= depth <= limit for depth, limit in zip(depths, limits, strict=True))
    assert sum(depths) < len(step_ms)
    without_drafts = rate(p, [0] * len(p), num_tokens, step_ms, draft_ms)
    if any(depths):
        assert rate(p, depths, num_tokens, step_ms, draft_ms) > MIN_SPEEDUP * without_drafts * (1 - 1e-9)
        # A sample gets at least the depth of a less likely one, unless its limit is below that.
        for (_, depth, limit), (_, less_likely_depth, _) in pairwise(
            sorted(zip(p, depths, limits, strict=True), reverse=True)
        ):
            assert depth >= less_likely_depth or depth == limit


@given(st.floats(0.05, 0.99), st.integers(1, 9))
def test_a_single_sample_gets_the_best_of_all_depths(p: float, limit: int) -> None:
    step_ms = [10 + 0.8 * number + 6 * (number > 4) for number in range(40)]
    (chosen,) = best_depths([p], [limit], 1, step_ms)
    rates = {depth: rate([p], [depth], 1, step_ms, 0.0) for depth in range(limit + 1) if p**depth >= 0.01}
    best = max(rates.values())
    assert rates[chosen] == pytest.approx(best) if best > MIN_SPEEDUP * rates[0] else chosen == 0


def test_depth_follows_the_cost_of_rows() -> None:
    flat, steep = [10.0] * 97, [1.0 * (8 + number) for number in range(97)]
    assert best_depths([0.9] * 8, [48] * 8, 8, flat) == [12] * 8
    assert best_depths([0.9] * 8, [48] * 8, 8, steep) == [0] * 8
    assert best_depths([0.9, 0.1], [48, 48], 2, [10 + number for number in range(97)])[1] == 0
    assert best_depths([0.9], [48], 1, flat, draft_ms=6.0) == [2]
    assert best_depths([0.9], [48], 1, flat, draft_ms=8.0) == [0]


class Workload:
    """A machine, samples and an acceptance rate that a test changes between runs."""

    def __init__(self) -> None:
        self.controller = DepthController()
        self.rng = random.Random(5)
        self.batch, self.acceptance = 1, 0.0
        self.step_ms = lambda num_tokens: 10 + max(0, num_tokens - 24) * 1.0  # free up to 24 rows

    def run(self, num_steps: int) -> tuple[float, float]:
        """Drafted tokens per step, and the time as a multiple of decoding the same tokens without drafts."""
        num_drafted = num_tokens = 0
        elapsed_ms = 0.0
        keys = [SampleKey(f"{number}") for number in range(self.batch)]
        depths: dict[SampleKey, int] = {}
        for _ in range(num_steps):
            ms = self.step_ms(self.batch + sum(depths.values()))
            self.controller.observe_step(self.batch + sum(depths.values()), ms * self.rng.uniform(0.95, 1.05))
            elapsed_ms += ms
            num_tokens += self.batch
            for key, depth in depths.items():
                num_accepted = 0
                while num_accepted < depth and self.rng.random() < self.acceptance:
                    num_accepted += 1
                self.controller.observe_verified(key, 0, depth, num_accepted)
                num_drafted += depth
                num_tokens += num_accepted
            depths = {}
            if self.controller.can_pay(self.batch):
                depths = self.controller.depths({key: DraftOffer(48) for key in keys}, self.batch)
        return num_drafted / num_steps, elapsed_ms / (num_tokens / self.batch * self.step_ms(self.batch))


def test_drafting_stops_and_resumes_with_the_batch_size() -> None:
    load = Workload()
    load.acceptance = 0.9
    load.run(20)
    num_drafted, cost = load.run(50)
    assert num_drafted > 5
    assert cost < 0.25
    load.batch = 32  # every row costs: only probes are left
    load.run(60)
    num_drafted, cost = load.run(300)
    assert num_drafted < 1
    assert cost < 1.02
    load.batch = 4  # resumes as soon as steps of this size are measured
    load.run(10)
    num_drafted, cost = load.run(50)
    assert num_drafted > 8
    assert cost < 0.5


def test_drafting_stops_and_resumes_with_acceptance() -> None:
    load = Workload()
    load.step_ms = lambda num_tokens: 10 + 2.0 * (num_tokens - 1)
    load.run(100)
    num_drafted, cost = load.run(400)
    assert num_drafted < PROBE_DEPTH / PROBE_INTERVAL * 1.5
    assert cost < 1.02
    load.acceptance = 0.95
    load.run(2 * MAX_PROBE_INTERVAL)
    num_drafted, cost = load.run(60)
    assert num_drafted > 3
    assert cost < 0.6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("acceptance", "min_speedup"), [(0.5, 1.25), (0.7, 1.45)])
def test_a_steady_drafter_goes_on_drafting(acceptance: float, min_speedup: float, seed: int) -> None:
    """Its acceptance rate is the same anywhere, so rejections in a row predict nothing. One drafted token in every
    pass would give (1 + acceptance) / 1.13."""
    simulation = Simulation(seed)
    answers = [simulation.answer(acceptance) for _ in range(16)]
    assert fmean(answer.drafting_share for answer in answers) > 0.8
    assert fmean(answer.speedup for answer in answers) > min_speedup


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("acceptance", [0.0, 0.1, 0.2])
def test_little_is_lost_at_a_low_acceptance_rate(acceptance: float, seed: int) -> None:
    simulation = Simulation(seed)
    assert fmean(simulation.answer(acceptance).speedup for _ in range(8)) > 0.98


@pytest.mark.parametrize("seed", range(4))
def test_samples_that_differ_are_judged_apart(seed: int) -> None:
    simulation = Simulation(seed)
    for number in range(8):
        simulation.answer(0.95 * (number % 2))
    copying, others = zip(*((simulation.answer(0.95), simulation.answer(0.05)) for _ in range(8)), strict=True)
    assert fmean(answer.drafting_share for answer in copying) > 0.8
    assert fmean(answer.speedup for answer in copying) > 2.5
    assert fmean(answer.drafting_share for answer in others) < 0.25
    assert fmean(answer.speedup for answer in others) > 0.9


def test_recent_acceptance_counts_as_far_as_it_predicts() -> None:
    rng, steady, differing = random.Random(1), AcceptanceEstimator(), AcceptanceEstimator()
    for number in range(40):
        for _ in range(30):
            steady.observe(SampleKey(f"{number}"), 0, 1, rng.random() < 0.5)
            differing.observe(SampleKey(f"{number}"), 0, 1, rng.random() < (0.05, 0.95)[number % 2])
    new = SampleKey("new")
    before = steady.probability(new, 0), differing.probability(new, 0)
    for estimator in (steady, differing):
        for _ in range(3):
            estimator.observe(new, 0, 1, 0)
    assert before == pytest.approx((0.5, 0.5), abs=0.15)
    assert steady.probability(new, 0) > 0.35
    assert differing.probability(new, 0) < 0.25


def test_without_a_measured_step_there_are_no_drafts() -> None:
    controller = DepthController()
    assert not controller.can_pay(1)
    assert controller.depths({SampleKey("a"): DraftOffer(9)}, 1) == {}


def test_the_cost_model_tells_eight_rows_from_nine() -> None:
    cost = StepCost(BandMedians())
    for num_tokens in range(1, 17):
        cost.observe(num_tokens, 10.0 if num_tokens <= 8 else 25.0)
    step_ms = cost.table(1, 16)
    assert step_ms == [10.0] * 8 + [25.0] * 8
    assert best_depths([0.8], [48], 1, step_ms) == [7]
