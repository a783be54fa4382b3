"""Deadlines of requests whose answer has its own time."""

from surefoot.core import FinishReason
from surefoot.scheduler import SchedulerConfig
from tests.scheduler.workloads import key, make_loop, request


def test_a_prompt_that_advances_has_no_deadline() -> None:
    """It takes ten times as long as the answer may; the answer's time begins after it."""
    loop = make_loop(SchedulerConfig(max_context=10_000))
    loop.scheduler.add(request("long", 8000, 10, deadline=0.8, answer_s=0.8))
    while key("long") not in loop.ended:
        loop.step()
    assert loop.now > 8
    assert loop.ended[key("long")].reason is FinishReason.LENGTH
    loop.scheduler.audit()


def test_an_answer_has_its_time_after_the_prompt() -> None:
    loop = make_loop(SchedulerConfig(max_context=10_000))
    loop.scheduler.add(request("long", 4000, 5000, deadline=1.0, answer_s=1.0))
    begun = None
    while key("long") not in loop.ended:
        loop.step()
        if begun is None and loop.tokens.get(key("long")):
            begun = loop.now
    assert loop.ended[key("long")].reason is FinishReason.DEADLINE
    assert begun is not None
    assert 1.0 <= loop.now - begun < 1.2
    loop.scheduler.audit()


def test_a_request_that_only_waits_ends() -> None:
    """The only row is taken in the first step, after which the other request is overdue."""
    loop = make_loop(SchedulerConfig(max_context=10_000, max_running=1))
    loop.scheduler.add(request("long", 8000, 10))
    loop.scheduler.add(request("waits", 100, 10, deadline=0.05, answer_s=0.05))
    while key("waits") not in loop.ended:
        loop.step()
    assert loop.ended[key("waits")].reason is FinishReason.DEADLINE
    assert loop.now < 2
    loop.scheduler.cancel("long")
    loop.step()
    loop.scheduler.audit()


def test_the_time_that_a_client_gives_is_final() -> None:
    loop = make_loop(SchedulerConfig(max_context=10_000))
    loop.scheduler.add(request("long", 8000, 10, deadline=0.8))
    while key("long") not in loop.ended:
        loop.step()
    assert loop.ended[key("long")].reason is FinishReason.DEADLINE
    assert loop.now < 2
