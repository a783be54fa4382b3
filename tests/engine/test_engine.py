"""The engine on a small real model: batching, chunks, stops, aborts and failures."""

from dataclasses import replace
from itertools import count

import pytest

from surefoot.core import FinishReason, Request, SampleKey, SamplingParams, StepPlan
from surefoot.engine import Engine, Event
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.runner import Executed
from surefoot.runner.executor import Row, Tables
from surefoot.scheduler import RequestRefused, Scheduler
from tests.engine.engine import CONFIG, LAYOUT, expected, finish, make_engine, requests, run


def test_every_sample_is_complete() -> None:
    answers = expected()
    assert len(answers) == sum(request.params.n for request in requests())
    for request in requests():
        for number in range(request.params.n):
            tokens, logprobs, reason = answers[SampleKey(request.id, number)]
            assert len(tokens) == request.params.max_tokens
            assert reason is FinishReason.LENGTH
            assert len(logprobs) == (0 if request.params.logprobs is None else len(tokens))
    assert answers["r1", 0] != answers["r1", 1] != answers["r1", 2]


def test_threads_do_not_change_the_result() -> None:
    assert run(make_engine(threads=1), requests()) == expected()


def test_late_arrivals_do_not_change_answers() -> None:
    engine, waiting, answers = make_engine(), requests(), {}
    while waiting or engine.has_work:
        if waiting:
            engine.add(waiting.pop())
        for event in engine.step():
            answers.setdefault(event.key, []).extend(event.tokens)
    assert answers == {key: tokens for key, (tokens, _, _) in expected().items()}


def test_stop_tokens_end_an_answer() -> None:
    tokens = expected()["r0", 0][0]
    stop = next(token for token in tokens[3:] if tokens.index(token) >= 3)
    request = requests()[0]
    stopped = replace(request, params=replace(request.params, stop_token_ids=(stop,)))
    stopped_tokens, _, reason = run(make_engine(), [stopped])["r0", 0]
    assert (stopped_tokens, reason) == (tokens[: tokens.index(stop) + 1], FinishReason.STOP)
    as_eos = replace(request, eos_token_ids=frozenset({stop}))
    assert run(make_engine(), [as_eos])["r0", 0][::2] == (stopped_tokens, FinishReason.STOP)
    ignoring = replace(as_eos, params=replace(request.params, ignore_eos=True))
    assert run(make_engine(), [ignoring])["r0", 0][0] == tokens


def test_abort_during_prefill_and_during_decoding() -> None:
    engine = make_engine(replace(CONFIG, max_chunk=16, max_step_tokens=16))
    for request in requests():
        engine.add(request)
    events = engine.step()
    engine.abort("r1")  # its prompt has 120 tokens
    for _ in range(4):
        events += engine.step()
    engine.abort("r0")
    engine.abort("unknown")
    answers = finish(engine, events)
    for key, (_, _, reason) in answers.items():
        assert (reason is FinishReason.CANCELLED) == (key.request in ("r0", "r1"))
    assert answers["r4", 0] == expected()["r4", 0]
    assert run(engine, [requests()[1]])["r1", 2] == expected()["r1", 2]  # every block was freed


def test_finish_ends_a_sample_between_steps() -> None:
    engine = make_engine()
    engine.add(requests()[0])
    engine.step()
    last = engine.finish(SampleKey("r0"))
    assert last is not None
    assert last.reason is FinishReason.STOP
    assert engine.finish(SampleKey("r0")) is None
    assert not engine.has_work


def test_deadlines() -> None:
    now = 0.0
    engine = Engine(lambda: Scheduler(CONFIG, KvManager(LAYOUT)), make_engine()._executor, clock=lambda: now)
    engine.add(replace(requests()[0], deadline=1.0))
    engine.step()
    now = 1.5
    (event,) = engine.step()
    assert event.reason is FinishReason.DEADLINE


def test_usage_and_times() -> None:
    engine = make_engine()
    engine.add(requests()[1])
    last: dict[SampleKey, Event] = {}
    while engine.has_work:
        last |= {event.key: event for event in engine.step() if event.reason}
    for event in last.values():
        assert event.usage is not None
        assert (event.usage.num_prompt, event.usage.num_generated) == (120, 12)
        times = event.times
        assert times is not None
        assert times.arrived <= times.started <= times.first_token <= times.ended


@pytest.mark.parametrize("when", ["before the model", "while sampling"])
def test_one_request_fails_alone(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    owner, name = (Tables, "update") if when == "before the model" else (Row, "verify")
    original = getattr(owner, name)

    def fail(*arguments: object) -> object:
        if any(isinstance(argument, Row) and argument.request.id == "r1" for argument in arguments):
            raise RuntimeError("injected failure")
        return original(*arguments)

    monkeypatch.setattr(owner, name, fail)
    engine, errors = make_engine(), {}
    for request in requests():
        engine.add(request)
    answers: dict[SampleKey, list[int]] = {}
    while engine.has_work:
        for event in engine.step():
            answers.setdefault(event.key, []).extend(event.tokens)
            if event.error is not None:
                assert event.reason is FinishReason.ERROR
                errors[event.key] = event.error
    assert errors == {SampleKey("r1", number): "RuntimeError: injected failure" for number in range(3)}
    for key, (tokens, _, _) in expected().items():
        assert answers[key] == ([] if key.request == "r1" else tokens)


def test_a_failed_chunk_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt's chunk that was never computed must not serve the next request with the same prompt."""
    engine = make_engine(replace(CONFIG, max_chunk=32))
    forward, calls = engine._executor.runner.forward, count()

    def fail_once(flat: object) -> object:
        if next(calls) == 1:
            raise RuntimeError("injected failure")
        return forward(flat)

    monkeypatch.setattr(engine._executor.runner, "forward", fail_once)
    first, second = requests()[1], replace(requests()[1], id="again")
    failed = run(engine, [first])
    assert {reason for _, _, reason in failed.values()} == {FinishReason.ERROR}
    answers = run(engine, [second])
    assert [answers["again", number] for number in range(3)] == [expected()["r1", number] for number in range(3)]


def test_reset_forgets_everything() -> None:
    engine = make_engine()
    for request in requests():
        engine.add(request)
    engine.step()
    engine.reset()
    assert not engine.has_work
    assert run(engine, requests()) == expected()


def test_error_messages_say_what_to_do() -> None:
    engine = make_engine()
    with pytest.raises(RequestRefused, match="shorten the prompt"):
        engine.add(Request("long", (1,) * 256))
    engine.add(Request("same", (1,)))
    with pytest.raises(RequestRefused, match="another id"):
        engine.add(Request("same", (1,)))
    small = make_engine(layout=KvLayout(16, (KvGroup(4),)))
    with pytest.raises(RequestRefused, match="lower max_tokens"):
        small.add(Request("large", (1,), SamplingParams(max_tokens=100)))


def test_interrupted_steps_do_not_change_answers() -> None:
    """An interrupted step is planned again: no sample advances."""
    engine = make_engine()
    for request in requests():
        engine.add(request)
    events: list[Event] = []
    for number in range(40):
        if number % 3 == 1:
            engine._executor.stop()
            assert not engine.step()
            engine.resume()
        events += engine.step()
    assert finish(engine, events) == expected()


def test_interrupt_only_stops_a_step_that_the_request_dominates() -> None:
    stops: list[bool] = []
    # No step is too long, so that the prompt's chunks have 64 tokens however slow the machine is.
    engine = make_engine(replace(CONFIG, gap_ms=1e9, crowd_ms=1e9, max_gap_ratio=1e9))
    executor = engine._executor
    execute = executor.execute

    def watched(plan: StepPlan) -> Executed:
        before = len(stops)
        engine.interrupt("small")
        assert len(stops) == before
        if any(len(chunk.tokens) > 32 for chunk in plan.chunks):
            engine.interrupt("large")
            assert len(stops) == before + 1
        return execute(plan)

    executor.execute, executor.stop = watched, lambda stop=True: stops.append(stop)  # type: ignore[method-assign]
    engine.add(Request("small", (1, 403), SamplingParams(max_tokens=3)))
    engine.add(Request("large", tuple(range(300, 420)), SamplingParams(max_tokens=3)))
    finish(engine)
    num_stops = len(stops)
    assert num_stops >= 2
    engine.interrupt("large")
    assert len(stops) == num_stops, "it has ended"
