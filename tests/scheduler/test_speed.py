"""The chunk budget follows the speed that is measured."""

import math
import statistics

import hypothesis.strategies as st
import pytest
from hypothesis import given

from surefoot.core import BAND_ROWS, ServiceClass
from surefoot.scheduler import SchedulerConfig
from surefoot.scheduler.prompts import DEAREST_FILLED, PromptBudget
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


@pytest.mark.parametrize("row_context", [1000.0, 4000.0, math.inf])
def test_a_long_prompts_last_chunks_take_no_longer_than_its_first(row_context: float) -> None:
    """Each of their tokens has thousands before it to look at, so there must be fewer of them."""
    loop = make_loop(SchedulerConfig(max_context=10_000, row_context=row_context))
    scheduler, runner = loop.scheduler, loop.runner

    def step() -> tuple[float, int]:
        """Its time, by rows and by what they look at; and prompt tokens."""
        plan = scheduler.schedule()
        looked_at = sum(chunk.start * len(chunk.tokens) for chunk in plan.chunks if chunk.key == key("long"))
        runner.elapsed_ms = lambda num_tokens: 10.0 + 0.5 * (num_tokens + looked_at / row_context)
        result = runner.execute(plan)
        loop.take(scheduler.commit(result))
        return result.elapsed_ms, max(len(chunk.tokens) for chunk in plan.chunks)

    for number in range(8):
        scheduler.add(request(f"r{number}", 20, 4000))
    for _ in range(20):
        alone_ms, _ = step()
    scheduler.add(request("long", 8000, 1))
    taken = []
    while key("long") not in loop.tokens:
        taken.append(step())
    times = [ms for ms, _ in taken[:-1]]
    assert statistics.quantiles(times, n=100)[98] <= 3 * alone_ms
    assert statistics.median(times[len(times) // 2 :]) >= 1.5 * alone_ms, "no shorter than bands make them"
    first, last = taken[4][1], taken[-4][1]
    assert (first > last) == (row_context < math.inf)


@given(st.floats(-20, 400), st.integers(0, 64), st.integers(0, 300), st.integers(0, 9000), st.integers(1, 9000))
def test_a_budget_ends_with_a_band(tokens: float, least_rows: int, num_rows: int, start: int, num_left: int) -> None:
    budget = PromptBudget(tokens, math.inf, 16, least_rows, 2048, num_rows, 2000.0)
    size, price = budget.chunk_size(start, num_left), 1 + start / 2000
    assert 0 < size <= num_left
    assert size == num_left or (num_rows + size) % BAND_ROWS == 0 or price >= DEAREST_FILLED
    assert size == num_left or size >= max(least_rows, int(16 / price), 1) or price >= DEAREST_FILLED
    assert size * price <= max(tokens, (max(least_rows, 16 / price, 1) + BAND_ROWS) * price)


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


def test_one_slow_step_does_not_keep_steps_short_for_ever() -> None:
    loop = make_loop(SchedulerConfig(max_context=100_000), base_ms=10.0, token_ms=0.3)
    loop.scheduler.cost.observe(300, 5000.0)
    loop.scheduler.add(request("decodes", 20, 2000))
    loop.scheduler.add(request("long", 60_000, 1, service=ServiceClass.BATCH))
    loop.scheduler.cancel("decodes")
    sizes = [loop.step().num_tokens for _ in range(60)]
    assert max(sizes) >= 480, "of the 512 that a chunk may have"
