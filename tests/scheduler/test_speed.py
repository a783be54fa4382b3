"""The size of chunks follows the measured duration of steps."""

import math
import statistics

import hypothesis.strategies as st
import pytest
from hypothesis import given

from surefoot.core import BAND_ROWS, ServiceClass, TimedStep
from surefoot.scheduler import SchedulerConfig
from surefoot.scheduler.prompts import MAX_ROUNDED_UP_PRICE, PromptBudget
from tests.scheduler.workloads import key, make_loop, request


def shape(base_ms: float, token_ms: float) -> tuple[TimedStep, ...]:
    return tuple(TimedStep(num_tokens, base_ms + token_ms * num_tokens) for num_tokens in (1, 4, 16, 64, 256))


@pytest.mark.parametrize(("base_ms", "token_ms"), [(100.0, 1.0), (20.0, 0.2), (60.0, 5.0)])
def test_steps_meet_the_gap_target_during_a_long_prefill(base_ms: float, token_ms: float) -> None:
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
    target = min(loop.scheduler.config.gap_ms, 2.5 * alone_ms)
    assert statistics.median(gaps) == pytest.approx(target, rel=0.2)
    assert statistics.quantiles(gaps, n=100)[98] <= 1.25 * target
    assert statistics.quantiles(gaps, n=100)[98] <= 3 * alone_ms


@pytest.mark.parametrize("num_streams", [8, 12, 24])
@pytest.mark.parametrize("token_ms", [3.0, 30.0])
def test_where_every_row_costs_the_same_no_band_is_filled(num_streams: int, token_ms: float) -> None:
    """Vector kernels have no bands: beside 8 streams, 24 more tokens would take four times as long."""
    loop = make_loop(SchedulerConfig(max_context=10_000), base_ms=0.0, token_ms=token_ms)
    for number in range(num_streams):
        loop.scheduler.add(request(f"r{number}", 20, 2000))
    for _ in range(60):
        loop.step()
    loop.scheduler.add(request("long", 2000, 1))
    gaps, before = [], loop.now
    while key("long") not in loop.tokens:
        loop.step()
        gaps.append((loop.now - before) * 1000)
        before = loop.now
    alone_ms = num_streams * token_ms
    assert max(gaps) <= 3 * alone_ms
    assert statistics.median(gaps) >= min(1.6 * alone_ms, alone_ms + 16 * token_ms), "prompts are still read"


@pytest.mark.parametrize("num_streams", [1, 4, 8])
def test_neither_a_band_nor_drafts_make_a_gap_that_readers_notice(num_streams: int) -> None:
    """Times of a 1.5B model on two cores without AMX: a second band takes 300 ms, and so do drafts beside a prompt."""
    config = SchedulerConfig(max_context=10_000, step_shape=shape(45.0, 8.5))
    loop = make_loop(config, base_ms=45.0, token_ms=8.5)
    loop.runner.num_drafts = lambda text: 12
    for number in range(num_streams):
        loop.scheduler.add(request(f"r{number}", 20, 2000))
    for _ in range(60):
        loop.step()
    loop.scheduler.add(request("long", 1000, 1))
    num_steps, gaps, before = 0, [], loop.now
    while key("long") not in loop.tokens:
        loop.step()
        gaps.append((loop.now - before) * 1000)
        before, num_steps = loop.now, num_steps + 1
    assert max(gaps) <= 200
    assert num_steps <= 1000 / 6, "prompts are still read"


def test_the_drafts_of_a_request_that_is_alone_are_not_cut() -> None:
    loop = make_loop(SchedulerConfig(), base_ms=45.0, token_ms=20.0)
    loop.runner.num_drafts = lambda text: 12
    loop.scheduler.add(request("alone", 20, 100))
    assert [loop.step().num_tokens for _ in range(3)] == [20, 13, 13]


def test_drafts_are_not_cut_where_only_batch_requests_decode() -> None:
    """Nobody reads along, so steps may take as long as they like."""
    loop = make_loop(SchedulerConfig(step_shape=shape(45.0, 20.0)), base_ms=45.0, token_ms=20.0)
    loop.runner.num_drafts = lambda text: 12
    for number in range(2):
        loop.scheduler.add(request(f"r{number}", 20, 100, service=ServiceClass.BATCH))
    assert 26 in [loop.step().num_tokens for _ in range(5)]


@pytest.mark.parametrize("row_context", [1000.0, 4000.0, math.inf])
def test_the_last_chunks_of_a_long_prompt_take_no_longer_than_the_first(row_context: float) -> None:
    """Each token of the last chunks attends to thousands of others, so these chunks must be smaller."""
    loop = make_loop(SchedulerConfig(max_context=10_000, row_context=row_context))
    scheduler, runner = loop.scheduler, loop.runner

    def step() -> tuple[float, int]:
        """The step's duration, from rows and context tokens; and its prompt tokens."""
        plan = scheduler.schedule()
        num_context = sum(chunk.start * len(chunk.tokens) for chunk in plan.chunks if chunk.key == key("long"))
        runner.elapsed_ms = lambda num_tokens: 10.0 + 0.5 * (num_tokens + num_context / row_context)
        result = runner.execute(plan)
        loop.take(scheduler.commit(result))
        return result.elapsed_ms, max(len(chunk.tokens) for chunk in plan.chunks)

    for number in range(8):
        scheduler.add(request(f"r{number}", 20, 4000))
    for _ in range(20):
        alone_ms, _ = step()
    scheduler.add(request("long", 8000, 1))
    steps = []
    while key("long") not in loop.tokens:
        steps.append(step())
    times = [ms for ms, _ in steps[:-1]]
    assert statistics.quantiles(times, n=100)[98] <= 3 * alone_ms
    assert statistics.median(times[len(times) // 2 :]) >= 1.5 * alone_ms, "no shorter than rounding to bands makes them"
    first, last = steps[4][1], steps[-4][1]
    assert (first > last) == (row_context < math.inf)


@given(st.floats(-20, 400), st.integers(0, 64), st.integers(0, 300), st.integers(0, 9000), st.integers(1, 9000))
def test_chunks_end_with_a_full_band(
    target_rows: float, min_tokens: int, num_step_tokens: int, start: int, num_left: int
) -> None:
    budget = PromptBudget(target_rows, math.inf, 16, min_tokens, 2048, num_step_tokens, 2000.0)
    size, price = budget.chunk_size(start, num_left), 1 + start / 2000
    assert 0 < size <= num_left
    assert size == num_left or (num_step_tokens + size) % BAND_ROWS == 0 or price >= MAX_ROUNDED_UP_PRICE
    assert size == num_left or size >= max(min_tokens, int(16 / price), 1) or price >= MAX_ROUNDED_UP_PRICE
    assert size * price <= max(target_rows, (max(min_tokens, 16 / price, 1) + BAND_ROWS) * price)


def test_steps_with_batch_requests_only_are_longer() -> None:
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
def test_several_interactive_prompts_are_prefilled_in_short_steps(token_ms: float, num_rows: int) -> None:
    """A new request waits for the end of a step: 50 ms, or the duration of `full_chunk` rows if that is longer."""
    loop = make_loop(SchedulerConfig(max_context=10_000), base_ms=10.0, token_ms=token_ms)
    sizes = []
    for number in range(2):
        loop.scheduler.add(request(f"r{number}", 8000, 1))
        sizes.append([loop.step().num_tokens for _ in range(8)][-1])
    alone, together = sizes
    assert together == num_rows
    assert alone == (512 if token_ms == 0.25 else num_rows), "a single request has 180 ms"


def test_prefill_continues_when_decoding_alone_exceeds_the_target() -> None:
    loop = make_loop(SchedulerConfig(step_shape=shape(500.0, 1.0)), base_ms=500.0)
    loop.scheduler.add(request("decodes", 20, 200))
    for _ in range(3):
        loop.step()
    loop.scheduler.add(request("waits", 160, 2))
    assert [loop.step().num_tokens for _ in range(3)] == [
        2 * 16
    ] * 3  # one decoding row and `min_chunk`, rounded up to two bands


def test_one_slow_step_does_not_keep_steps_short() -> None:
    loop = make_loop(SchedulerConfig(max_context=100_000), base_ms=10.0, token_ms=0.3)
    loop.scheduler.cost.observe(300, 5000.0)
    loop.scheduler.add(request("decodes", 20, 2000))
    loop.scheduler.add(request("long", 60_000, 1, service=ServiceClass.BATCH))
    loop.scheduler.cancel("decodes")
    sizes = [loop.step().num_tokens for _ in range(60)]
    assert max(sizes) >= 480, "of at most 512"
