"""Tiny models with a layer that drafts: their own, or a published head."""

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from surefoot.core import Request, SamplingParams
from surefoot.engine import Engine, MemoryRequest, Usage, make_engine, make_runner, plan_memory
from surefoot.formats import SERVED
from surefoot.models import Model, load_eagle, with_head
from surefoot.ops import Backend, KvForm
from surefoot.runner import LayerDrafter, Runner, slot_bytes
from surefoot.sampling import Grammars
from surefoot.speculate import Drafter, LookupDrafter, LookupFirst, Speculator
from surefoot.weights import open_eagle
from tests.engine.engine import Answers, finish
from tests.engine.speculation import FixedDepth

tiny = pytest.importorskip("tests.models.tiny")
tiny_eagle = pytest.importorskip("tests.models.tiny_eagle")
tiny_mtp = pytest.importorskip("tests.models.tiny_mtp")

BLOCK, MAX_DRAFTS = 16, 96
HEAD = "head"  # of llama
NAMES = (*tiny_mtp.NAMES, HEAD)


@functools.cache
def backend() -> Backend:
    return Backend(threads=2)


@functools.cache
def model(name: str) -> Model:
    """A tiny model whose layer is often right."""
    return with_tiny_head("llama") if name == HEAD else tiny_mtp.make_model(backend(), name)


def with_tiny_head(name: str) -> Model:
    parts = tiny.reference(name).get_input_embeddings(), tiny.reference(name).lm_head
    head = tiny_eagle.make_head(*(part.weight.detach().numpy() for part in parts))
    return attached(backend(), tiny.make_model(backend(), name), head)


def attached(on: Backend, target: Model, head: "tiny_eagle.TinyHead") -> Model:
    with TemporaryDirectory() as folder:
        path = tiny_eagle.save(head, "speculators", Path(folder))
        return with_head(target, load_eagle(on, open_eagle(path), target, SERVED))


def opened(
    model: Model, depth: int, caching: bool = True, lookup: bool = False, grammars: Grammars | None = None,
    on: Backend | None = None, make: Callable[[Runner], Drafter] = LayerDrafter,
) -> Engine:  # fmt: skip
    """depth: of every draft; 0: an engine without drafts."""
    on = on or backend()
    used = model if depth else model.without_drafting()
    sizes = slot_bytes(on, used.config, block_size=BLOCK)
    request = MemoryRequest(sizes, 64 << 20, 448, 4, max_chunk=64, block_size=BLOCK)
    capacity = plan_memory(used, request, on.variant)
    runner = make_runner(on, used, capacity, KvForm.KEYS_TWO_LIMBS, MAX_DRAFTS)
    if not depth:
        return make_engine(capacity, runner, grammars, caching=caching)
    drafter = LookupFirst(LookupDrafter(), make(runner)) if lookup else make(runner)
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
