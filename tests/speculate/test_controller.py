"""How deep to draft: within bounds, where it pays, off and on again as load and luck change."""

import random
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import BandMedians, SampleKey, StepCost
from surefoot.speculate import Controller, Prospect
from surefoot.speculate.acceptance import Acceptance
from surefoot.speculate.controller import LEAST_GAIN, LONGEST_PAUSE, PROBE_DEPTH, PROBE_EVERY, best_depths
from tests.speculate.answers import Answers

CHANCES = st.lists(st.floats(0, 0.99), min_size=1, max_size=12)
STEPS = st.lists(st.floats(0, 5), min_size=30, max_size=30)


def rate(chances: list[float], depths: list[int], num_tokens: int, table: list[float], level_ms: float) -> float:
    gain = sum(chance**power for chance, depth in zip(chances, depths, strict=True) for power in range(1, depth + 1))
    return (num_tokens + gain) / (table[sum(depths)] + level_ms * max(depths))


@given(CHANCES, STEPS, st.floats(0.1, 10), st.integers(0, 20), st.floats(0, 3), st.randoms())
def test_depths_pay(chances: list[float], rises: list[float], first: float, others: int, level_ms: float, rng) -> None:  # noqa: ANN001
    table = [first]
    for rise in rises:
        table.append(table[-1] + rise)
    mosts = [rng.randint(0, 9) for _ in chances]
    num_tokens = len(chances) + others
    depths = best_depths(chances, mosts, num_tokens, table, level_ms)
    assert all(0 <= depth <= most for depth, most in zip(depths, mosts, strict=True))
    assert sum(depths) < len(table)
    none = rate(chances, [0] * len(chances), num_tokens, table, level_ms)
    if any(depths):
        assert rate(chances, depths, num_tokens, table, level_ms) > LEAST_GAIN * none * (1 - 1e-9)
        # No sample goes deeper than a likelier one could.
        for one, other in pairwise(sorted(zip(chances, depths, mosts, strict=True), reverse=True)):
            assert one[1] >= other[1] or one[1] == one[2]


@given(st.floats(0.05, 0.99), st.integers(1, 9))
def test_alone_it_is_the_best_of_all_depths(chance: float, most: int) -> None:
    table = [10 + 0.8 * number + 6 * (number > 4) for number in range(40)]
    (depth,) = best_depths([chance], [most], 1, table)
    every = {one: rate([chance], [one], 1, table, 0.0) for one in range(most + 1) if chance**one >= 0.01}
    best = max(every.values())
    assert every[depth] == pytest.approx(best) if best > LEAST_GAIN * every[0] else depth == 0


def test_where_rows_are_free_it_goes_deep_and_where_they_are_not_it_does_not() -> None:
    flat, steep = [10.0] * 97, [1.0 * (8 + number) for number in range(97)]
    assert best_depths([0.9] * 8, [48] * 8, 8, flat) == [12] * 8
    assert best_depths([0.9] * 8, [48] * 8, 8, steep) == [0] * 8
    assert best_depths([0.9, 0.1], [48, 48], 2, [10 + number for number in range(97)])[1] == 0
    assert best_depths([0.9], [48], 1, flat, level_ms=6.0) == [2]
    assert best_depths([0.9], [48], 1, flat, level_ms=8.0) == [0]


class Workload:
    """A machine, samples and luck that follow a script."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.rng = random.Random(5)
        self.batch, self.luck = 1, 0.0
        self.ms_of = lambda num_tokens: 10 + max(0, num_tokens - 24) * 1.0  # free up to 24 rows

    def run(self, num_steps: int) -> tuple[float, float]:
        """Drafted tokens a step, and time over what as many tokens would take without."""
        num_drafted = num_tokens = 0
        elapsed = 0.0
        keys = [SampleKey(f"{number}") for number in range(self.batch)]
        depths: dict[SampleKey, int] = {}
        for _ in range(num_steps):
            ms = self.ms_of(self.batch + sum(depths.values()))
            self.controller.observe_step(self.batch + sum(depths.values()), ms * self.rng.uniform(0.95, 1.05))
            elapsed += ms
            num_tokens += self.batch
            for key, depth in depths.items():
                right = 0
                while right < depth and self.rng.random() < self.luck:
                    right += 1
                self.controller.observe_verified(key, 0, depth, right)
                num_drafted += depth
                num_tokens += right
            depths = {}
            if self.controller.is_open(self.batch):
                depths = self.controller.depths({key: Prospect(48) for key in keys}, self.batch)
        return num_drafted / num_steps, elapsed / (num_tokens / self.batch * self.ms_of(self.batch))


def test_it_turns_off_and_on_again() -> None:
    load = Workload()
    load.luck = 0.9
    load.run(20)
    drafted, cost = load.run(50)
    assert drafted > 5
    assert cost < 0.25
    load.batch = 32  # every row costs: off, but for a probe now and then
    load.run(60)
    drafted, cost = load.run(300)
    assert drafted < 1
    assert cost < 1.02
    load.batch = 4  # on again, as soon as it is known what steps of this size cost
    load.run(10)
    drafted, cost = load.run(50)
    assert drafted > 8
    assert cost < 0.5


def test_it_stops_guessing_where_guesses_are_wrong_and_notices_when_they_are_right() -> None:
    load = Workload()
    load.ms_of = lambda num_tokens: 10 + 2.0 * (num_tokens - 1)
    load.run(100)
    drafted, cost = load.run(400)
    assert drafted < PROBE_DEPTH / PROBE_EVERY * 1.5
    assert cost < 1.02
    load.luck = 0.95
    load.run(2 * LONGEST_PAUSE)
    drafted, cost = load.run(60)
    assert drafted > 3
    assert cost < 0.6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("luck", "least"), [(0.5, 1.25), (0.7, 1.45)])
def test_a_steady_drafter_drafts_on(luck: float, least: float, seed: int) -> None:
    """It is right as often anywhere, so wrong guesses in a row say nothing. One guess in every pass would give
    (1 + luck) / 1.13."""
    answers = Answers(seed)
    found = [answers.answer(luck) for _ in range(16)]
    assert fmean(share for share, _ in found) > 0.8
    assert fmean(speed for _, speed in found) > least


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("luck", [0.0, 0.1, 0.2])
def test_where_guesses_are_mostly_wrong_little_is_lost(luck: float, seed: int) -> None:
    answers = Answers(seed)
    assert fmean(answers.answer(luck)[1] for _ in range(8)) > 0.98


@pytest.mark.parametrize("seed", range(4))
def test_where_samples_differ_each_is_judged_by_itself(seed: int) -> None:
    answers = Answers(seed)
    for number in range(8):
        answers.answer(0.95 * (number % 2))
    copying, other = zip(*((answers.answer(0.95), answers.answer(0.05)) for _ in range(8)), strict=True)
    assert fmean(share for share, _ in copying) > 0.8
    assert fmean(speed for _, speed in copying) > 2.5
    assert fmean(share for share, _ in other) < 0.25
    assert fmean(speed for _, speed in other) > 0.9


def test_luck_counts_as_far_as_it_foretells() -> None:
    rng, steady, differing = random.Random(1), Acceptance(), Acceptance()
    for number in range(40):
        for _ in range(30):
            steady.note(SampleKey(f"{number}"), 0, 1, rng.random() < 0.5)
            differing.note(SampleKey(f"{number}"), 0, 1, rng.random() < (0.05, 0.95)[number % 2])
    new = SampleKey("new")
    before = steady.share(new, 0), differing.share(new, 0)
    for one in (steady, differing):
        for _ in range(3):
            one.note(new, 0, 1, 0)
    assert before == pytest.approx((0.5, 0.5), abs=0.15)
    assert steady.share(new, 0) > 0.35
    assert differing.share(new, 0) < 0.25


def test_without_a_measured_step_there_are_no_drafts() -> None:
    controller = Controller()
    assert not controller.is_open(1)
    assert controller.depths({SampleKey("a"): Prospect(9)}, 1) == {}


def test_eight_rows_are_told_from_nine() -> None:
    cost = StepCost(BandMedians())
    for num_tokens in range(1, 17):
        cost.observe(num_tokens, 10.0 if num_tokens <= 8 else 25.0)
    table = cost.table(1, 16)
    assert table == [10.0] * 8 + [25.0] * 8
    assert best_depths([0.8], [48], 1, table) == [7]
