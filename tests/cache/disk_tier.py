"""Engines of tiny models over a cache on disk."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.cache import DiskTier
from surefoot.core import Request, SampleKey
from surefoot.disk_cache import BlockHasher, BlockStore
from surefoot.engine import Engine, MemoryRequest, Usage, make_engine, make_runner, plan_memory
from surefoot.models import Model
from surefoot.ops import Backend, KvForm
from surefoot.runner import slot_bytes
from surefoot.sampling import TokenLogprobs

tiny = pytest.importorskip("tests.models.tiny")


BLOCK = 16


BUDGET = 256 << 20


# Full attention, windows beside it, shared layers with windows, one latent vector a token; states.
HYBRIDS = ("lfm2", "qwen3_5", "granitemoehybrid", "nemotron_h")


FAMILIES = ("llama", "gemma3", "gemma4", "deepseek_v2", *HYBRIDS)


Answer = tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]


Answers = dict[SampleKey, Answer]


@functools.cache
def backend(variant: str | None = None, threads: int = 2) -> Backend:
    return Backend(variant, threads)


@functools.cache
def model(family: str, variant: str | None = None, threads: int = 2) -> Model:
    made = tiny.make_model(backend(variant, threads), family)
    return replace(made, config=replace(made.config, context=1024))


@contextmanager
def opened(
    family: str, folder: Path | None, megabytes: float = 64, variant: str | None = None, threads: int = 2
) -> Iterator[Engine]:
    """folder: None for an engine without a cache on disk."""
    ops, loaded = backend(variant, threads), model(family, variant, threads)
    sizes = slot_bytes(ops, loaded.config, block_size=BLOCK)
    context = 320 if megabytes < 1 else None
    request = MemoryRequest(sizes, int(megabytes * (1 << 20)), context, 4, max_chunk=64, block_size=BLOCK)
    capacity = plan_memory(loaded, request, ops.variant)
    runner = make_runner(ops, loaded, capacity, KvForm.KEYS_TWO_LIMBS)
    tier = None
    if folder is not None:
        hasher = BlockHasher(family.encode())
        tier = DiskTier(BlockStore(folder, BUDGET), lambda: hasher, runner.kv)
    engine = make_engine(capacity, runner, tier=tier)
    yield engine
    engine.planner.audit()
    engine.close()


def run(engine: Engine, asked: list[Request]) -> tuple[Answers, dict[str, Usage]]:
    """Audits every step of few requests: an audit visits all of them."""
    answers: Answers = {}
    usages = {}
    for request in asked:
        engine.add(request)
    while engine.has_work:
        for event in engine.step():
            tokens, logprobs = answers.get(event.key, ((), ()))
            answers[event.key] = tokens + event.tokens, logprobs + event.logprobs
            if event.usage is not None:
                usages[event.key.request] = event.usage
        if len(asked) <= 100:
            engine.planner.audit()
    return answers, usages


def tier_of(engine: Engine) -> DiskTier:
    assert isinstance(engine._tier, DiskTier)
    return engine._tier
