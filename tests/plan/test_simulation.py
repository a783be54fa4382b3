"""Users in simulated time, served by the real scheduler."""

import pytest

from surefoot.kv import KvGroup, KvLayout
from surefoot.plan.simulation import LoadFigures, LoadSimulation, ServingCost, UserLoad
from surefoot.scheduler import SchedulerConfig
from surefoot.speed.step_time import PredictedSteps
from tests.plan.machines import machine, model

CONFIG = SchedulerConfig(max_context=256, max_running=8)
TIMES = PredictedSteps(model().work, machine().rates)


def simulate(num_users: int, pause_s: float = 0.0, shared: int = 0, times: PredictedSteps = TIMES) -> LoadFigures:
    load = UserLoad(num_users, 100, 20, shared, pause_s, num_answers=24)
    return LoadSimulation(times, CONFIG, KvLayout(16, (KvGroup(4096),)), load).run()


def test_a_user_alone_gets_what_the_cost_model_says() -> None:
    figures = simulate(1)
    step = 1 / figures.speed(0.5)
    assert TIMES.decode_seconds(1, 100) <= step <= TIMES.decode_seconds(1, 120)
    assert figures.first_token_s(0.5) == pytest.approx(TIMES.prefill_seconds(100, 512), rel=0.01)
    assert len(figures.answers) == 24


def test_more_users_wait_longer_and_get_more_tokens_together() -> None:
    few, many = simulate(1), simulate(8)
    assert many.first_token_s(0.95) > few.first_token_s(0.95)
    assert many.speed(0.95) < few.speed(0.95)
    assert many.tokens_per_second > few.tokens_per_second


def test_every_answer_is_whole() -> None:
    figures = simulate(4)
    assert figures.num_tokens >= 20 * len(figures.answers)


def test_a_shared_beginning_is_computed_once() -> None:
    assert simulate(4, shared=90).first_token_s(0.5) < simulate(4).first_token_s(0.5)


def test_a_faster_machine_answers_sooner() -> None:
    fast = PredictedSteps(model().work, machine().faster(operations=2, bandwidth=2).rates)
    assert simulate(4, times=fast).seconds < simulate(4).seconds


def test_the_same_seed_gives_the_same_figures() -> None:
    assert simulate(3, pause_s=1.0) == simulate(3, pause_s=1.0)


def test_users_with_one_question_each() -> None:
    load = UserLoad(5, 100, 20, asks_again=False)
    figures = LoadSimulation(TIMES, CONFIG, KvLayout(16, (KvGroup(4096),)), load).run()
    assert len(figures.answers) == 5
    assert figures.num_tokens == 5 * 20


def test_sending_tokens_takes_time_from_steps() -> None:
    layout, load = KvLayout(16, (KvGroup(4096),)), UserLoad(1, 100, 20, asks_again=False)
    alone, served, slow = (
        LoadSimulation(TIMES, CONFIG, layout, load, cost).run().seconds
        for cost in (ServingCost(), ServingCost(token_s=0.01), ServingCost(slowdown=1.5))
    )
    assert served == pytest.approx(alone + 20 * 0.01)
    assert slow == pytest.approx(1.5 * alone)
