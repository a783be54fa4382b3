"""Engines over one loaded model: without the cache on disk, or with it, as after a restart."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cache.rates import drop_from_memory
from surefoot.api import LLM, SamplingParams
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task, ids
from surefoot.cache import DiskTier
from surefoot.core import Request
from surefoot.disk_cache import BlockHasher, BlockStore
from surefoot.engine import Capacity, Engine, make_engine
from surefoot.sampling import TokenLogprobs

BUDGET = 8 << 30
FLUSH_S = 60.0
Answer = tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]


@dataclass
class Switch:
    """Whether blocks are kept: those that wait are kept once it is on again."""

    is_on: bool = True


@dataclass(frozen=True)
class CacheSession:
    engine: Engine
    tier: DiskTier
    switch: Switch

    def finish_writing(self) -> None:
        while self.engine.keep_blocks():
            self.tier.wait()
        if not self.tier.flush(FLUSH_S):
            raise EngineError("the disk did not take the blocks in time")


@dataclass(frozen=True)
class TimedRun:
    answers: dict[str, Answer]
    first_token_s: float  # of the first request


def plain_engine(llm: LLM) -> Engine:
    return make_engine(llm.capacity, llm.runner)


@contextmanager
def cached(llm: LLM, folder: Path, capacity: Capacity | None = None) -> Iterator[CacheSession]:
    """An engine with an empty tree over what the folder holds, none of which is in memory. capacity: the model's own if
    it is None."""
    folder.mkdir(exist_ok=True)
    drop_from_memory(folder)
    hasher, switch = BlockHasher(b"bench"), Switch()
    tier = DiskTier(BlockStore(folder, BUDGET), lambda: hasher if switch.is_on else None, llm.runner.kv)
    engine = make_engine(capacity or llm.capacity, llm.runner, tier=tier)
    try:
        yield CacheSession(engine, tier, switch)
    finally:
        engine.close()


def capacity_for_one(capacity: Capacity, num_prompt: int, num_new: int) -> Capacity:
    """Memory for one request of this length: every other one falls out."""
    layout = capacity.layout
    price = layout.price(num_prompt, num_new, 1, capacity.scheduling.max_chunk)
    groups = (
        replace(group, num_blocks=min(blocks, group.num_blocks))
        for group, blocks in zip(layout.groups, price, strict=True)
    )
    return replace(capacity, layout=replace(layout, groups=tuple(groups)))


def run_tasks(engine: Engine, tasks: Sequence[Task]) -> TimedRun:
    """All at once, greedy, with logprobs."""
    answers: dict[str, Answer] = {}
    first_token_s, start = 0.0, time.perf_counter()
    for number, task in enumerate(tasks):
        params = SamplingParams(temperature=0, max_tokens=task.num_new, ignore_eos=True, seed=0, logprobs=1)
        engine.add(Request(str(number), task.prompt, params, namespace=task.namespace))
    while engine.has_work:
        for event in engine.step():
            tokens, logprobs = answers.get(event.key.request, ((), ()))
            answers[event.key.request] = tokens + event.tokens, logprobs + event.logprobs
            first_token_s = first_token_s or (time.perf_counter() - start if event.tokens else 0.0)
    return TimedRun(answers, first_token_s)


def alike_prompts(count: int, vocab: int, longest: int, seed: int) -> list[Task]:
    """Prompts that often begin alike, of three users."""
    rng = random.Random(seed)
    stems = [ids(rng, longest, vocab) for _ in range(3)]
    return [
        Task(rng.choice(stems)[: rng.randrange(1, longest)] + ids(rng, rng.randrange(1, 20), vocab), 4, f"user {n % 3}")
        for n in range(count)
    ]
