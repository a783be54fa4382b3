"""Drafts of the model's own layer do not change answers, and some of them are accepted."""

import functools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from surefoot.core import Request, SampleKey, SamplingParams
from surefoot.engine import Engine, Event, MemoryRequest, Usage, make_engine, make_runner, plan_memory
from surefoot.models import Model
from surefoot.ops import Backend, KvForm
from surefoot.runner import LayerDrafter, slot_bytes
from surefoot.sampling import TokenLogprobs
from surefoot.scheduler import Scheduler
from surefoot.speculate import LookupDrafter, LookupFirst, Speculator
from tests.engine.speculation import FixedDepth

tiny = pytest.importorskip("tests.models.tiny")
tiny_mtp = pytest.importorskip("tests.models.tiny_mtp")

BLOCK = 16
MAX_DRAFTS = 96
names = pytest.mark.parametrize("name", tiny_mtp.NAMES)
Answer = tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]
Answers = dict[SampleKey, Answer]


@functools.cache
def backend() -> Backend:
    return Backend(threads=2)


@functools.cache
def model(name: str) -> Model:
    return tiny_mtp.make_model(backend(), name)


def opened(name: str, depth: int, caching: bool = True, lookup: bool = False) -> Engine:
    """depth: of every draft; 0: an engine without the drafting layer."""
    loaded = model(name) if depth else model(name).without_drafting()
    sizes = slot_bytes(backend(), loaded.config, block_size=BLOCK)
    request = MemoryRequest(sizes, 64 << 20, 448, 4, max_chunk=64, block_size=BLOCK)
    capacity = plan_memory(loaded, request, backend().variant)
    runner = make_runner(backend(), loaded, capacity, KvForm.KEYS_TWO_LIMBS, MAX_DRAFTS)
    if not depth:
        return make_engine(capacity, runner, caching=caching)
    drafter = LookupFirst(LookupDrafter(), LayerDrafter(runner)) if lookup else LayerDrafter(runner)
    return make_engine(capacity, runner, caching=caching, speculator=Speculator(drafter, FixedDepth(depth)))


def run(engine: Engine, asked: Sequence[Request]) -> tuple[Answers, list[Usage]]:
    answers: Answers = {}
    usages = []
    for request in asked:
        engine.add(request)
    while engine.has_work:
        events = engine.step()
        merge(answers, events)
        usages += [event.usage for event in events if event.usage is not None]
        engine.planner.audit()
    return answers, usages


def merge(answers: Answers, events: Sequence[Event]) -> None:
    for event in events:
        tokens, logprobs = answers.get(event.key, ((), ()))
        answers[event.key] = tokens + event.tokens, logprobs + event.logprobs


@functools.cache
def requests() -> tuple[Request, ...]:
    """Greedy and sampled, alone and several samples, prompts that begin alike."""
    rng = random.Random(5)
    stem = [rng.randrange(tiny.VOCAB) for _ in range(150)]
    made = []
    for number in range(14):
        prompt = (*stem[: rng.randrange(1, 150)], *(rng.randrange(tiny.VOCAB) for _ in range(rng.randrange(1, 20))))
        params = SamplingParams(
            temperature=0.0 if number % 2 else 0.7, seed=number, max_tokens=rng.randrange(1, 60), logprobs=1,
            n=1 + number % 5 // 4, ignore_eos=True,
        )  # fmt: skip
        made.append(Request(str(number), prompt, params))
    return tuple(made)


@functools.cache
def expected(name: str) -> Answers:
    return run(opened(name, 0), requests())[0]


@names
@pytest.mark.parametrize("depth", [1, 3, 20])
def test_drafts_do_not_change_answers(name: str, depth: int) -> None:
    answers, usages = run(opened(name, depth), requests())
    assert answers == expected(name)
    num_drafted, num_accepted = (
        sum(getattr(usage, part) for usage in usages) for part in ("num_drafted", "num_accepted")
    )
    assert 0.02 * num_drafted < num_accepted < num_drafted, "both outcomes are to be seen"


@names
def test_one_after_the_other_with_prefix_hits(name: str) -> None:
    """After a hit the layer goes on from keys, values and a row that an earlier request left."""
    engine, num_cached, num_accepted = opened(name, 2), 0, 0
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
        engine = opened(name, 3, caching=caching)
        for _ in range(2):
            _, (usage,) = run(engine, [Request("r", prompt, params)])
            passes.append((usage.num_passes, usage.num_accepted))
        assert (usage.num_cached > 0) == caching
    assert len(set(passes)) == 1


@names
def test_preemption(name: str) -> None:
    """Every few steps a running sample goes back to the queue."""
    engine = opened(name, 4)
    assert isinstance(engine.planner, Scheduler)
    for request in requests():
        engine.add(request)
    answers: Answers = {}
    num_steps = 0
    while engine.has_work:
        merge(answers, engine.step())
        num_steps += 1
        if num_steps % 5 == 0 and engine.planner.running:
            engine.planner.preempt(engine.planner.running[num_steps % len(engine.planner.running)].key)
            engine.planner.audit()
    assert answers == expected(name)
    assert engine.planner.num_preemptions > 5


def test_beside_lookup() -> None:
    assert run(opened("qwen3_5", 3, lookup=True), requests())[0] == expected("qwen3_5")


def test_too_few_blocks_for_all_drafts() -> None:
    """Samples for which no blocks are left get no drafts."""
    engine = opened("qwen3_5", 48)
    more = [replace(request, id=f"again {request.id}") for request in requests()]
    answers, _ = run(engine, [*requests(), *more])
    assert {key: answers[key] for key in expected("qwen3_5")} == expected("qwen3_5")


def test_a_model_without_the_layer_is_refused() -> None:
    plain = opened("qwen3_5", 0)
    with pytest.raises(ValueError, match="no layer that drafts"):
        LayerDrafter(plain._executor.runner)  # type: ignore[attr-defined]
