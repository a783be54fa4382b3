"""Blocks under the scheduler: prefix sharing, copy on write, preemption and readmission."""

import pytest

from surefoot.core import FinishReason, ServiceClass
from surefoot.scheduler import RequestRefused, SchedulerConfig
from tests.scheduler.fake_runner import FakeRunner, reference_output
from tests.scheduler.workloads import BLOCK, key, make_loop, request


def num_computed(plans: list) -> int:
    return sum(plan.num_tokens for plan in plans)


def test_simultaneous_requests_with_one_prompt_compute_it_once() -> None:
    loop = make_loop(SchedulerConfig(first_chunk=4096, gap_ms=1e4, crowd_ms=1e4, max_gap_ratio=1e4), with_memory=True)
    requests = [request(f"r{number}", 320, 3, text=1) for number in range(8)]
    for each in requests:
        loop.scheduler.add(each)
    plans = []
    while loop.scheduler.has_work:
        plans.append(loop.step())
    # The first computes all 320 tokens. The other seven compute the last block, for its logits. Then two tokens each.
    assert num_computed(plans) == 320 + 7 * BLOCK + 8 * 2
    assert [loop.ended[key(each.id)].num_cached for each in requests] == [0, *[320 - BLOCK] * 7]


def test_blocks_are_shared_while_the_prompt_is_still_being_computed() -> None:
    loop = make_loop(SchedulerConfig(max_chunk=64, first_chunk=64), with_memory=True)
    loop.scheduler.add(request("first", 600, 2, text=1))
    loop.step()
    loop.scheduler.add(request("second", 600, 2, text=1))
    computed = 64 + num_computed([loop.step() for _ in range(3)])
    loop.drain(100)
    assert computed < 600, "the first prompt is still prefilling"
    assert loop.ended[key("second")].num_cached == 592


def test_namespaces_do_not_share_blocks() -> None:
    loop = make_loop(SchedulerConfig(), with_memory=True)
    for name in ("a", "b"):
        loop.scheduler.add(request(name, 320, 3, text=1, namespace=name))
        loop.drain(50)
    assert loop.ended[key("b")].num_cached == 0


@pytest.mark.parametrize("num_prompt", [100, 96])
def test_samples_of_one_prompt_copy_only_the_block_in_which_they_differ(num_prompt: int) -> None:
    loop = make_loop(SchedulerConfig(first_chunk=512), with_memory=True)
    asked = request("r", num_prompt, 40, n=3)
    loop.scheduler.add(asked)
    first, second = loop.step(), loop.step()
    assert [chunk.samples for chunk in first.chunks] == [(0, 1, 2)]
    assert [chunk.samples for chunk in second.chunks] == [(0,), (1,), (2,)]
    # If the prompt ends within a block, every sample but the last to write there copies the block.
    assert len(second.copies) == (2 if num_prompt % BLOCK else 0)
    shared = {chunk.tables[0][: num_prompt // BLOCK] for chunk in second.chunks}
    assert len(shared) == 1, "full blocks stay shared"
    loop.drain(100)
    assert [loop.tokens[key("r", sample)] for sample in range(3)] == [
        reference_output(asked, sample) for sample in range(3)
    ]


def test_preemption_spares_the_oldest_and_costs_little() -> None:
    # Blocks for about three of the four requests at their full length.
    loop = make_loop(SchedulerConfig(headroom_tokens=1), num_blocks=48, with_memory=True)
    requests = [request(f"r{number}", 64, 180, user=f"u{number}") for number in range(4)]
    for each in requests:
        loop.scheduler.add(each)
    computed, preempted = 0, set()
    while loop.scheduler.has_work:
        plan = loop.step()
        computed += plan.num_tokens
        loop.scheduler.audit()
        preempted |= {ended.request for ended in plan.ends if ended not in loop.ended}
    assert loop.scheduler.num_preemptions > 0
    assert "r0" not in preempted, "the oldest request is never preempted"
    assert all(loop.tokens[key(each.id)] == reference_output(each, 0) for each in requests)
    once = 4 * (64 + 179)
    assert computed < 1.5 * once, "full blocks stayed in the prefix tree"


def test_the_oldest_is_not_preempted_even_if_it_is_least_urgent() -> None:
    # Each takes 16 blocks at its full length, so no two fit.
    loop = make_loop(SchedulerConfig(headroom_tokens=1), num_blocks=28, with_memory=True)
    requests = [request(name, 64, 180, service=ServiceClass.BATCH) for name in ("oldest", "batch")]
    requests += [request("interactive", 64, 180)]
    preempted: list[str] = []
    for each in requests:
        loop.scheduler.add(each)
        loop.step()
        loop.step()
    while loop.scheduler.has_work:
        plan = loop.step()
        loop.scheduler.audit()
        preempted += [ended.request for ended in plan.ends if ended not in loop.ended]
    assert preempted[0] == "batch"
    assert "interactive" in preempted
    assert "oldest" not in preempted
    assert all(loop.tokens[key(each.id)] == reference_output(each, 0) for each in requests)


def test_a_request_that_can_never_fit_is_refused_before_anything_is_allocated() -> None:
    loop = make_loop(SchedulerConfig(max_context=4096, max_running=4), num_blocks=20)
    assert loop.scheduler.price(request("r", 100, 30, n=1)) == (9,)  # 129 slots: the last token takes none
    assert loop.scheduler.price(request("r", 100, 30, n=4)) == (6 + 4 * 3,)
    for too_large in [
        request("long", 300, 100), request("wide", 100, 60, n=4), request("many", 10, 1, n=5),
        request("endless", 5000, 1),
    ]:  # fmt: skip
        with pytest.raises(RequestRefused):
            loop.scheduler.add(too_large)
    loop.scheduler.audit()
    assert not loop.scheduler.has_work


def test_cancelled_and_overdue_requests_release_everything_during_a_long_prefill() -> None:
    loop = make_loop(SchedulerConfig(max_context=10_000))
    loop.scheduler.add(request("long", 8000, 10))
    loop.scheduler.add(request("late", 8000, 10, deadline=0.9))
    times = []
    while key("late") not in loop.ended:
        before = loop.now
        loop.step()
        times.append(loop.now - before)
    loop.scheduler.cancel("long")
    plan = loop.step()
    assert not plan.chunks
    assert loop.ended[key("late")].reason is FinishReason.DEADLINE
    assert loop.ended[key("long")].reason is FinishReason.CANCELLED
    assert 0.9 <= before < 0.9 + 0.5, "noticed at the first step boundary after the deadline"
    assert max(times) <= 0.85, "the longest wait of a new request"
    assert loop.scheduler.kv.pools[0].num_available == loop.scheduler.kv.pools[0].num_blocks
    loop.scheduler.audit()


def test_accepted_drafts_advance_and_rejected_ones_do_not() -> None:
    loop = make_loop(SchedulerConfig(), with_memory=True)
    loop.runner = FakeRunner(loop.runner.layout, num_drafts=lambda text: 3)
    asked = request("r", 30, 60)
    loop.scheduler.add(asked)
    loop.drain(60)
    assert loop.tokens[key("r")] == reference_output(asked, 0)
    assert loop.num_steps < 55, "some drafts were accepted"


def test_broken_logits_end_only_their_request() -> None:
    loop = make_loop(SchedulerConfig())
    for name in ("good", "bad"):
        loop.scheduler.add(request(name, 20, 5))
    plan = loop.scheduler.schedule()
    result = loop.runner.execute(plan)
    outputs = [output._replace(tokens=(-1,)) if output.key == key("bad") else output for output in result.outputs]
    loop.take(loop.scheduler.commit(type(result)(outputs, 1.0)))
    loop.drain(10)
    assert loop.ended[key("bad")].reason is FinishReason.ERROR
    assert loop.ended[key("good")].reason is FinishReason.LENGTH
