"""The cost model of a step: its predictions from observed times."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import BandMedians, RangeMeans, StepCost, TimedStep
from surefoot.core.step_cost import FORGET_AFTER

NUM_MORE = 96  # rows


def test_predictions_interpolate_and_extrapolate() -> None:
    cost = StepCost(RangeMeans())
    assert cost.tokens_within(100.0) is None
    cost.observe(10, 20.0)
    cost.observe(100, 110.0)
    assert cost.predict_ms(1) == 20.0
    assert cost.predict_ms(55) == pytest.approx(65.0)
    assert cost.tokens_within(65.0) == 55
    assert cost.tokens_within(220.0) == 200
    assert cost.tokens_within(10.0) == 5


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0.1, 1000)), min_size=1, max_size=80), st.integers(1, 150))
def test_predicted_times_rise(steps: list[tuple[int, float]], first: int) -> None:
    cost = StepCost(BandMedians())
    for num_tokens, ms in steps:
        cost.observe(num_tokens, ms)
    table = cost.table(first, first + NUM_MORE)
    if table is None:
        assert first > 2 * max(num_tokens for num_tokens, _ in steps)
        return
    assert len(table) == NUM_MORE + 1
    assert all(0 < smaller <= larger * (1 + 1e-9) for smaller, larger in pairwise(table))


def test_outliers_are_ignored_and_old_times_are_forgotten() -> None:
    cost = StepCost(BandMedians())
    for num_tokens in (1, 2, 4, 8, 16):
        cost.observe(num_tokens, 10.0)
    cost.observe(3, 500.0)
    assert cost.table(1, 16) == [10.0] * 16
    cost.observe(32, 900.0)
    assert cost.table(1, 32)[-1] == 900.0
    for _ in range(FORGET_AFTER + 1):
        cost.observe(16, 10.0)
    assert cost.table(16, 32) == pytest.approx([10.0] * 17)


SHAPE = tuple(TimedStep(1 << i, float(10 + (1 << i))) for i in range(10))  # 10 ms and 1 ms for each token


def test_one_step_and_the_shape_tell_all_sizes() -> None:
    cost = StepCost(RangeMeans(SHAPE))
    assert cost.predict_ms(1) is None
    cost.observe(8, 36.0)  # twice as long as the shape says
    assert cost.predict_ms(1) == pytest.approx(22.0)
    assert cost.predict_ms(8) == 36.0
    assert cost.predict_ms(256) == pytest.approx(532.0)
    assert cost.tokens_within(532.0) == 256


def test_between_two_sizes_time_follows_the_shape() -> None:
    steps = tuple(TimedStep(tokens, 10.0 if tokens <= 16 else 20.0) for tokens in (1, 2, 4, 8, 16, 17, 32, 64))
    cost = StepCost(BandMedians(steps))
    cost.observe(1, 30.0)
    cost.observe(32, 60.0)
    assert cost.predict_ms(8) == pytest.approx(30.0)
    assert cost.predict_ms(16) == pytest.approx(30.0)
    assert cost.predict_ms(48) == 60.0, "beyond what was seen, a larger step is still worth a trial"


@given(st.lists(st.tuples(st.integers(1, 700), st.floats(0.1, 1000)), min_size=1, max_size=60))
def test_times_rise_and_measured_ones_stay(steps: list[tuple[int, float]]) -> None:
    for times in (RangeMeans, BandMedians):
        plain, shaped = StepCost(times()), StepCost(times(SHAPE))
        for num_tokens, ms in steps:
            plain.observe(num_tokens, ms)
            shaped.observe(num_tokens, ms)
        predicted = [shaped.predict_ms(num_tokens) or 0.0 for num_tokens in range(1, 1024)]
        assert all(smaller <= larger * (1 + 1e-9) for smaller, larger in pairwise(predicted))
    num_tokens = {num_tokens for num_tokens, _ in steps}
    if len(num_tokens) == 1:
        assert shaped.predict_ms(*num_tokens) == pytest.approx(plain.predict_ms(*num_tokens), rel=1e-9)
