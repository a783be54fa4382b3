"""The conditions that requests run under. None of them may change an answer."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from surefoot.core import StepPlan
from surefoot.kv import KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig
from surefoot.verify.drafters import RULES

DRAFTERS = ("lookup", "draft model", *RULES)


class HostileScheduler(Scheduler):
    """Preempts half of the running requests every `preempt_every` steps. A request without a new token since its last
    preemption is spared, so that every request ends."""

    def __init__(self, config: SchedulerConfig, kv: KvManager, preempt_every: int) -> None:
        super().__init__(config, kv)
        self._every = preempt_every
        self._rng = random.Random(preempt_every)
        self._lengths: dict[object, int] = {}

    def schedule(self, now: float = 0.0) -> StepPlan:
        if self.num_steps % self._every == self._every - 1:
            for sample in self.running:
                length = len(sample.tokens)
                if self._rng.random() < 0.5 and self._lengths.get(sample.key) != length:
                    self._lengths[sample.key] = length
                    self.preempt(sample.key)
        return super().schedule(now)


@dataclass(frozen=True)
class Condition:
    """Scheduling, memory, drafts and machine for one run of all requests."""

    name: str
    max_chunk: int = 64  # tokens
    block_size: int = 16  # tokens
    caching: bool = True  # of prefixes
    arrivals: int | None = None  # seed of random arrivals; None: all requests at once
    preempt_every: int | None = None  # steps after which half of the running requests are preempted
    memory: float = 1.0  # fraction of the need of all requests at once; 0: only the largest request fits
    max_running: int = 16  # requests
    is_short: bool = False  # leaves out long prompts, which would need much memory
    timed: bool = False  # the scheduler chooses chunks by measured time, as in serving
    threads: int | None = None  # None: all cores
    variant: str | None = None  # None: the best
    drafter: str | None = None  # "lookup", "draft model" (the model itself) or one of RULES; None: no speculation
    governed: bool = False  # the controller chooses depths, as in serving; else they are random
    cut: int | None = None
    """Answers go on from their first `cut` tokens, as on the machine that takes over after another has failed; the
    second sample of a request from one token more, and so on. Never from all their tokens. None: from none."""


TOGETHER = Condition("all at once")
HOSTILE = Condition(
    "all of it", max_chunk=7, block_size=32, arrivals=7, preempt_every=3, memory=0.0, max_running=12, timed=True,
    drafter="random",
)  # fmt: skip
QUICK = (
    TOGETHER,
    Condition("random arrivals", arrivals=1),
    *(Condition(f"chunks of {size}", max_chunk=size, arrivals=2) for size in (1, 7, 512)),
    Condition("blocks of 32", block_size=32, arrivals=3),
    Condition("no prefix cache", caching=False, arrivals=4),
    Condition("preempted every 3 steps", preempt_every=3, arrivals=5),
    Condition("little memory", memory=0.0),
    Condition("preempted for want of memory", memory=0.0, is_short=True, max_chunk=512),
    Condition("chunks by the clock", timed=True, arrivals=6),
    *(Condition(f"drafts: {name}", drafter=name, arrivals=9) for name in DRAFTERS),
    Condition("drafts as in real life", drafter="lookup", governed=True, arrivals=10, timed=True),
    *(Condition(f"continued after {cut} tokens", cut=cut, arrivals=11) for cut in (1, 7)),
    HOSTILE,
)


def every() -> tuple[Condition, ...]:
    """The quick conditions, and every pair of chunk size and block size, with and without cache and preemption."""
    conditions = [*QUICK, Condition("preempted at every step", preempt_every=1, arrivals=8)]
    conditions += [
        Condition(f"drafts: {name}, preempted", drafter=name, preempt_every=2, memory=0.0) for name in DRAFTERS
    ]
    for size, block, caching, preempt in product((1, 7, 64, 512), (16, 32), (True, False), (None, 5)):
        words = [f"chunks of {size}", f"blocks of {block}", "cached" if caching else "not cached"]
        words += [] if preempt is None else [f"preempted every {preempt}"]
        conditions.append(
            Condition(", ".join(words), size, block, caching, arrivals=size + block, preempt_every=preempt)
        )
    return tuple(conditions)


ALL = every()


def on_variants(conditions: Sequence[Condition], variants: Sequence[str], threads: Sequence[int]) -> list[Condition]:
    """The conditions on every variant with every number of threads, grouped by variant."""
    return [
        replace(
            condition,
            name=f"{condition.name}, {variant}, {count} thread{'s' * (count > 1)}",
            variant=variant,
            threads=count,
        )
        for variant in variants
        for count in threads
        for condition in conditions
    ]
