"""Drafts of a layer beside the model, its own or a published head, do not change answers, and some are accepted."""

import functools
from dataclasses import replace

import pytest

from surefoot.core import Request, SamplingParams
from surefoot.runner import LayerDrafter
from surefoot.scheduler import Scheduler
from tests.engine.drafting import HEAD, NAMES, model, opened, requests, run
from tests.engine.engine import Answers, finish

names = pytest.mark.parametrize("name", NAMES)


@functools.cache
def expected(name: str) -> Answers:
    return run(opened(model(name), 0), requests())[0]


@names
@pytest.mark.parametrize("depth", [1, 3, 20])
def test_drafts_do_not_change_answers(name: str, depth: int) -> None:
    answers, usages = run(opened(model(name), depth), requests())
    assert answers == expected(name)
    num_drafted, num_accepted = (
        sum(getattr(usage, part) for usage in usages) for part in ("num_drafted", "num_accepted")
    )
    assert 20 < num_accepted < num_drafted, "both outcomes are to be seen"


@names
def test_one_after_the_other_with_prefix_hits(name: str) -> None:
    """After a hit the layer goes on from keys, values and a row that an earlier request left."""
    engine, num_cached, num_accepted = opened(model(name), 2), 0, 0
    for request in requests():
        answers, usages = run(engine, [request])
        assert answers == {key: expected(name)[key] for key in answers}
        num_cached += sum(usage.num_cached for usage in usages)
        num_accepted += sum(usage.num_accepted for usage in usages)
    assert num_cached > 100
    assert num_accepted > 20


@names
def test_hits_draft_what_misses_draft(name: str) -> None:
    """The same drafts, and so the same number of passes, whether the prompt was cached or not."""
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompt = requests()[0].prompt[:50] * 3
    passes = []
    for caching in (False, True):
        engine = opened(model(name), 3, caching=caching)
        for _ in range(2):
            _, (usage,) = run(engine, [Request("r", prompt, params)])
            passes.append((usage.num_passes, usage.num_accepted))
        assert (usage.num_cached > 0) == caching
    assert len(set(passes)) == 1


@names
def test_preemption(name: str) -> None:
    """Every few steps a running sample goes back to the queue."""
    engine = opened(model(name), 4)
    assert isinstance(engine.planner, Scheduler)
    for request in requests():
        engine.add(request)
    events, num_steps = [], 0
    while engine.has_work:
        events += engine.step()
        num_steps += 1
        if num_steps % 5 == 0 and engine.planner.running:
            engine.planner.preempt(engine.planner.running[num_steps % len(engine.planner.running)].key)
            engine.planner.audit()
    assert finish(engine, events) == expected(name)
    assert engine.planner.num_preemptions > 5


@pytest.mark.parametrize("name", ["qwen3_5", HEAD])
def test_beside_lookup(name: str) -> None:
    assert run(opened(model(name), 3, lookup=True), requests())[0] == expected(name)


def test_too_few_blocks_for_all_drafts() -> None:
    """Samples for which no blocks are left get no drafts."""
    engine = opened(model("qwen3_5"), 48)
    more = [replace(request, id=f"again {request.id}") for request in requests()]
    answers, _ = run(engine, [*requests(), *more])
    assert {key: answers[key] for key in expected("qwen3_5")} == expected("qwen3_5")


def test_a_model_without_the_layer_is_refused() -> None:
    plain = opened(model("qwen3_5"), 0)
    with pytest.raises(ValueError, match="no layer that drafts"):
        LayerDrafter(plain._executor.runner)  # type: ignore[attr-defined]
