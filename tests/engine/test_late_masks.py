"""Answers do not depend on when a grammar's mask is ready."""

import random
import time
from collections.abc import Sequence

import pytest
from llguidance import LLMatcher

from surefoot.core import FinishReason, Request, SamplingParams
from surefoot.engine import Engine, Event
from surefoot.runner import Runner
from surefoot.runner.executor import _settle
from surefoot.runner.results import DrawState
from surefoot.sampling.grammar import Constraint, Spending, lark_grammar
from surefoot.sampling.mask_worker import MaskWorker, WorkerTools
from surefoot.speculate import LookupDrafter, Speculator
from surefoot.verify.drafters import RandomDepths
from tests.engine.engine import expected, finish, requests
from tests.engine.speculation import grammar_answers, grammar_requests, make_engine

AMBIGUOUS = lark_grammar('start: e\ne: e e | "a" | "b" | e e e |')


def hostile() -> Request:
    """A request that never ends by itself: its end token has a large negative bias."""
    params = SamplingParams(seed=1, grammar=AMBIGUOUS, max_tokens=400, logit_bias={2: -100.0})
    return Request("hostile", (1, 403), params, eos_token_ids=frozenset({2}))


def start_preempted(engine: Engine) -> Sequence[Event]:
    """Runs some steps, between which all running samples are preempted."""
    events: list[Event] = []
    for number in range(40):
        events += engine.step() if engine.has_work else []
        for key in engine._executor._rows if number % 5 == 4 else ():  # type: ignore[attr-defined]
            engine.planner.preempt(key)  # type: ignore[attr-defined]
    return events


@pytest.mark.parametrize("is_preempted", [False, True], ids=["undisturbed", "preempted"])
@pytest.mark.parametrize("is_drafted", [False, True], ids=["plain", "drafted"])
def test_late_masks_do_not_change_answers(
    monkeypatch: pytest.MonkeyPatch, is_drafted: bool, is_preempted: bool
) -> None:
    rng, is_ready, late = random.Random(1), DrawState.is_ready, list[DrawState]()

    def is_ready_or_late(state: DrawState, deadline: float) -> bool:
        if state.constraint is not None and rng.random() < 0.3:
            late.append(state)
            return False
        return is_ready(state, deadline + 60)

    monkeypatch.setattr(DrawState, "is_ready", is_ready_or_late)
    speculator = Speculator(LookupDrafter(), RandomDepths(max_depth=5)) if is_drafted else None
    engine = make_engine(speculator, with_grammars=True)
    for request in [*requests(), *grammar_requests()]:
        engine.add(request)
    assert finish(engine, start_preempted(engine) if is_preempted else ()) == grammar_answers() | expected()
    assert len(late) > 20
    assert (engine.load().num_preemptions > 10) == is_preempted


def test_a_failing_grammar_fails_only_its_request_without_a_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, forward = [], Runner.forward
    monkeypatch.setattr(Runner, "forward", lambda runner, flat: passes.append(flat) or forward(runner, flat))
    engine, events, num_steps = make_engine(None, with_grammars=True), [], 0
    for request in [*requests(), hostile()]:
        engine.add(request)
    while engine.has_work:
        events += engine.step()
        num_steps += 1
    answers = finish(engine, events)
    tokens, _, reason = answers.pop(("hostile", 0))
    assert reason is FinishReason.ERROR
    assert tokens
    assert "GrammarError" in next(event.error for event in events if event.error)
    assert answers == expected()
    assert len(passes) <= num_steps


class Waits(DrawState):
    """A state that only says how long others would wait for it."""

    def __init__(self, is_slow: bool, spent_s: float, waited: list[float]) -> None:
        spending = Spending(spent_s, num_tokens=0 if is_slow else 1000)
        self.constraint = Constraint(
            MaskWorker(lambda: WorkerTools(lambda matcher, token: None, time.thread_time)), spending, LLMatcher
        )
        self._spent_s, self._waited = spent_s, waited

    def settle(self, seconds: float) -> None:
        self._waited.append(self._spent_s)


@pytest.mark.parametrize(
    ("states", "awaited"),
    [([(True, 0.5), (False, 0.1), (False, 0.2)], [0.2]), ([(True, 0.5), (True, 0.4)], [0.5]), ([], [])],
    ids=["in company", "among themselves", "none"],
)
def test_nobody_waits_for_the_masks_of_a_slow_grammar(states: list[tuple[bool, float]], awaited: list[float]) -> None:
    waited: list[float] = []
    _settle([Waits(is_slow, spent_s, waited) for is_slow, spent_s in states], 0.02)
    assert waited == awaited
