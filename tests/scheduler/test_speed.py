"""The chunk budget follows the speed that is measured."""

import statistics

import pytest

from surefoot.core import ServiceClass
from surefoot.scheduler import SchedulerConfig
from surefoot.scheduler.speed import Speed
from tests.scheduler.workloads import key, make_loop, request


@pytest.mark.parametrize(("base_ms", "token_ms"), [(100.0, 1.0), (20.0, 0.2), (60.0, 5.0)])
def test_steps_meet_the_gap_target_while_a_long_prompt_is_read(base_ms: float, token_ms: float) -> None:
    loop = make_loop(SchedulerConfig(max_context=10_000), base_ms=base_ms, token_ms=token_ms)
    for number in range(8):
        loop.scheduler.add(request(f"r{number}", 20, 2000))
    for _ in range(20):
        loop.step()
    loop.scheduler.add(request("long", 8000, 1))
    gaps, before = [], loop.now
    while key("long") not in loop.tokens:
        loop.step()
        gaps.append((loop.now - before) * 1000)
        before = loop.now
    alone_ms = base_ms + 8 * token_ms
    target = min(200.0, 2.5 * alone_ms)
    assert statistics.median(gaps) == pytest.approx(target, rel=0.2)
    assert statistics.quantiles(gaps, n=100)[98] <= 1.25 * target
    assert statistics.quantiles(gaps, n=100)[98] <= 3 * alone_ms


def test_batch_requests_let_steps_be_longer() -> None:
    sizes = {}
    for service in ServiceClass:
        loop = make_loop(SchedulerConfig(max_context=10_000), base_ms=10.0)
        loop.scheduler.add(request("decodes", 20, 2000, service=service))
        for _ in range(3):
            loop.step()
        loop.scheduler.add(request("long", 8000, 1, service=service))
        sizes[service] = [loop.step().num_tokens for _ in range(20)][-1]
    assert sizes[ServiceClass.BATCH] > 2 * sizes[ServiceClass.INTERACTIVE]


@pytest.mark.parametrize(("token_ms", "num_rows"), [(0.25, 160), (4.0, 64)])
def test_prompts_of_a_crowd_are_read_in_short_steps(token_ms: float, num_rows: int) -> None:
    """Whoever comes waits for a step's end: 50 ms, or what the rows take from which on larger steps are no cheaper."""
    loop = make_loop(SchedulerConfig(max_context=10_000), base_ms=10.0, token_ms=token_ms)
    sizes = []
    for number in range(2):
        loop.scheduler.add(request(f"r{number}", 8000, 1))
        sizes.append([loop.step().num_tokens for _ in range(8)][-1])
    alone, together = sizes
    assert together == num_rows
    assert alone == (512 if token_ms == 0.25 else num_rows), "who is alone has 200 ms"


def test_prompts_go_on_when_decoding_alone_is_too_slow() -> None:
    loop = make_loop(SchedulerConfig(), base_ms=500.0)
    loop.scheduler.add(request("decodes", 20, 200))
    for _ in range(3):
        loop.step()
    loop.scheduler.add(request("waits", 160, 2))
    assert [loop.step().num_tokens for _ in range(3)] == [2 * 16] * 3  # the least chunk beside one: a second band


def test_a_curve_is_read_between_its_points_and_beyond() -> None:
    speed = Speed()
    assert speed.tokens_within(100.0) is None
    speed.observe(10, 20.0)
    speed.observe(100, 110.0)
    assert speed.predict_ms(1) == 20.0
    assert speed.predict_ms(55) == pytest.approx(65.0)
    assert speed.tokens_within(65.0) == 55
    assert speed.tokens_within(220.0) == 200
    assert speed.tokens_within(10.0) == 5


def test_one_slow_step_does_not_keep_steps_short_for_ever() -> None:
    loop = make_loop(SchedulerConfig(max_context=100_000), base_ms=10.0, token_ms=0.3)
    loop.scheduler.speed.observe(300, 5000.0)
    loop.scheduler.add(request("decodes", 20, 2000))
    loop.scheduler.add(request("long", 60_000, 1, service=ServiceClass.BATCH))
    loop.scheduler.cancel("decodes")
    sizes = [loop.step().num_tokens for _ in range(60)]
    assert max(sizes) >= 480, "of the 512 that a chunk may have"
