"""Drafts of a published head do not change answers, whether they are accepted or not."""

import functools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from surefoot.core import Request, SampleKey, SamplingParams
from surefoot.engine import Engine, MemoryRequest, Usage, make_engine, make_runner, plan_memory
from surefoot.formats import SERVED
from surefoot.models import Model, load_eagle, with_head
from surefoot.ops import Backend, KvForm
from surefoot.runner import LayerDrafter, slot_bytes
from surefoot.sampling import Grammars
from surefoot.scheduler import Scheduler
from surefoot.speculate import LookupDrafter, LookupFirst, Speculator
from surefoot.weights import GgufFile, open_eagle
from tests.engine import engine as stories
from tests.engine import speculation as stories_speculation
from tests.engine.engine import Answers, finish
from tests.engine.speculation import FixedDepth
from tests.stories import stories_gguf

tiny = pytest.importorskip("tests.models.tiny")
tiny_eagle = pytest.importorskip("tests.models.tiny_eagle")

BLOCK, MAX_DRAFTS = 16, 96


@functools.cache
def backend() -> Backend:
    return Backend(threads=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny target with a head that is often right."""
    return with_tiny_head("llama", tmp_path_factory.mktemp("head"))


def with_tiny_head(name: str, folder: Path) -> Model:
    parts = tiny.reference(name).get_input_embeddings(), tiny.reference(name).lm_head
    head = tiny_eagle.make_head(*(part.weight.detach().numpy() for part in parts))
    return attached(backend(), tiny.make_model(backend(), name), head, folder)


@pytest.fixture(scope="module")
def stories_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A target with a tokenizer, and a head that is mostly wrong."""
    file = GgufFile(stories_gguf())
    table = file.floats("token_embd.weight")
    head = tiny_eagle.make_head(table, table, ids=range(0, len(table), 3))
    return attached(stories.backend(), stories.model(), head, tmp_path_factory.mktemp("head"))


def attached(backend: Backend, target: Model, head: "tiny_eagle.TinyHead", folder: Path) -> Model:
    path = tiny_eagle.save(head, "speculators", folder)
    return with_head(target, load_eagle(backend, open_eagle(path), target, SERVED))


def opened(
    model: Model, depth: int, caching: bool = True, lookup: bool = False, grammars: Grammars | None = None,
    on: Backend | None = None,
) -> Engine:  # fmt: skip
    """depth: of every draft; 0: an engine without the head."""
    on = on or backend()
    used = model if depth else model.without_drafting()
    sizes = slot_bytes(on, used.config, block_size=BLOCK)
    request = MemoryRequest(sizes, 64 << 20, 448, 4, max_chunk=64, block_size=BLOCK)
    capacity = plan_memory(used, request, on.variant)
    runner = make_runner(on, used, capacity, KvForm.KEYS_TWO_LIMBS, MAX_DRAFTS)
    if not depth:
        return make_engine(capacity, runner, grammars, caching=caching)
    drafter = LookupFirst(LookupDrafter(), LayerDrafter(runner)) if lookup else LayerDrafter(runner)
    speculator = Speculator(drafter, FixedDepth(depth))
    return make_engine(capacity, runner, grammars, caching=caching, speculator=speculator)


def run(engine: Engine, asked: Sequence[Request]) -> tuple[Answers, list[Usage]]:
    for request in asked:
        engine.add(request)
    events = []
    while engine.has_work:
        events += engine.step()
        engine.planner.audit()
    return finish(engine, events), [event.usage for event in events if event.usage is not None]


@functools.cache
def requests() -> tuple[Request, ...]:
    """Greedy and sampled, with penalties, alone and several samples, prompts that begin alike."""
    rng = random.Random(5)
    stem = [rng.randrange(tiny.VOCAB) for _ in range(150)]
    made = []
    for number in range(14):
        prompt = (*stem[: rng.randrange(1, 150)], *(rng.randrange(tiny.VOCAB) for _ in range(rng.randrange(1, 20))))
        params = SamplingParams(
            temperature=0.0 if number % 2 else 0.7, seed=number, max_tokens=rng.randrange(1, 60), logprobs=1,
            n=1 + number % 5 // 4, ignore_eos=True, presence_penalty=0.4 if number % 6 == 5 else 0.0,
        )  # fmt: skip
        made.append(Request(str(number), prompt, params))
    return tuple(made)


@pytest.fixture(scope="module")
def expected(model: Model) -> Answers:
    return run(opened(model, 0), requests())[0]


@pytest.mark.parametrize("depth", [1, 3, 12])
def test_drafts_do_not_change_answers(model: Model, expected: Answers, depth: int) -> None:
    answers, usages = run(opened(model, depth), requests())
    assert answers == expected
    num_drafted, num_accepted = (
        sum(getattr(usage, part) for usage in usages) for part in ("num_drafted", "num_accepted")
    )
    assert 20 < num_accepted < num_drafted, "both outcomes are to be seen"


def test_one_after_the_other_with_prefix_hits(model: Model, expected: Answers) -> None:
    """After a hit the head goes on from keys, values and a row that an earlier request left."""
    engine, num_cached, num_accepted = opened(model, 2), 0, 0
    for request in requests():
        answers, usages = run(engine, [request])
        assert answers == {key: expected[key] for key in answers}
        num_cached += sum(usage.num_cached for usage in usages)
        num_accepted += sum(usage.num_accepted for usage in usages)
    assert num_cached > 100
    assert num_accepted > 20


def test_hits_draft_what_misses_draft(model: Model) -> None:
    """The same drafts, and so the same number of passes, whether the prompt was cached or not."""
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompt = requests()[0].prompt[:50] * 3
    passes = []
    for caching in (False, True):
        engine = opened(model, 3, caching=caching)
        for _ in range(2):
            _, (usage,) = run(engine, [Request("r", prompt, params)])
            passes.append((usage.num_passes, usage.num_accepted))
        assert (usage.num_cached > 0) == caching
    assert len(set(passes)) == 1


def test_preemption(model: Model, expected: Answers) -> None:
    """Every few steps a running sample goes back to the queue."""
    engine = opened(model, 4)
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
    assert finish(engine, events) == expected
    assert engine.planner.num_preemptions > 5


@pytest.mark.parametrize("name", ["mistral", "gemma3", "gpt_oss", "qwen3_5"])
def test_targets_with_windows_experts_or_states(tmp_path: Path, name: str) -> None:
    """The head's keys and values are of a group of their own, or share one; its row stands beside other states."""
    target, asked = with_tiny_head(name, tmp_path), requests()[:6]
    answers, usages = run(opened(target, 3), asked)
    assert answers == run(opened(target, 0), asked)[0]
    assert sum(usage.num_drafted for usage in usages) > 50


def test_beside_lookup(model: Model, expected: Answers) -> None:
    assert run(opened(model, 3, lookup=True), requests())[0] == expected


@pytest.mark.parametrize("depth", [2, 9])
def test_with_penalties_filters_and_several_samples(stories_model: Model, depth: int) -> None:
    engine = opened(stories_model, depth, on=stories.backend())
    assert run(engine, stories.requests())[0] == stories.expected()


def test_with_grammars(stories_model: Model) -> None:
    engine = opened(stories_model, 3, grammars=stories_speculation.grammars(), on=stories.backend())
    assert run(engine, stories_speculation.grammar_requests())[0] == stories_speculation.grammar_answers()


def test_only_listed_tokens_are_drafted(model: Model) -> None:
    engine = opened(model, 5)
    drafted: list[int] = []

    class Watched(LayerDrafter):
        def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
            drafts = super().draft(depths)
            drafted.extend(token for tokens in drafts.values() for token in tokens)
            return drafts

    engine._executor._speculator = Speculator(Watched(engine._executor.runner), FixedDepth(5))  # type: ignore[attr-defined,arg-type]
    run(engine, requests()[:6])
    assert len(drafted) > 50
    assert not np.any(np.array(drafted) % 2), "the head's list has every second token"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8))
def test_at_random(model: Model, seed: int) -> None:
    """Hundreds of samples at random depths, lengths and shares of a prompt."""
    rng, made = random.Random(seed), list[Request]()
    for number in range(24):
        prompt = tuple(requests()[0].prompt[: rng.randrange(1, 60)]) + tuple(
            rng.randrange(tiny.VOCAB) for _ in range(rng.randrange(1, 90))
        )
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.3, 1.0]), seed=rng.randrange(99), max_tokens=rng.randrange(1, 90),
            logprobs=1, n=rng.choice([1, 1, 3]), ignore_eos=True,
        )  # fmt: skip
        made.append(Request(str(number), prompt, params))
    assert run(opened(model, rng.randrange(1, 12)), made)[0] == run(opened(model, 0), made)[0]
