"""What may change and must not show."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from surefoot.verify.drafters import RULES

DRAFTERS = ("lookup", "draft model", *RULES)


@dataclass(frozen=True)
class Condition:
    """Company and machine for one run of all requests.

    arrivals: seed of random arrivals; None: all at once. preempt_every: each so many steps half of those who run are
    sent back to wait. memory: of what all requests at once would need; 0: the largest request fits, and the scheduler
    has to preempt by itself. is_short: without the longest prompts, for which much memory would be needed.
    timed: chunks follow the clock, as in real life.
    variant, threads: None is the best, all. drafter: None, "lookup", "draft model" (the model itself) or one of those
    that know the answers; deep at random, unless the drafts are governed, as in real life.
    """

    name: str
    max_chunk: int = 64
    block_size: int = 16
    caching: bool = True
    arrivals: int | None = None
    preempt_every: int | None = None
    memory: float = 1.0
    max_running: int = 16
    is_short: bool = False
    timed: bool = False
    threads: int | None = None
    variant: str | None = None
    drafter: str | None = None
    governed: bool = False


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
    HOSTILE,
)


def every() -> tuple[Condition, ...]:
    """Every pair of chunk and block size, with and without cache and preemption, besides the quick ones."""
    found = [*QUICK, Condition("preempted at every step", preempt_every=1, arrivals=8)]
    found += [Condition(f"drafts: {name}, preempted", drafter=name, preempt_every=2, memory=0.0) for name in DRAFTERS]
    for size, block, caching, preempt in product((1, 7, 64, 512), (16, 32), (True, False), (None, 5)):
        words = [f"chunks of {size}", f"blocks of {block}", "cached" if caching else "not cached"]
        words += [] if preempt is None else [f"preempted every {preempt}"]
        found.append(Condition(", ".join(words), size, block, caching, arrivals=size + block, preempt_every=preempt))
    return tuple(found)


ALL = every()


def elsewhere(conditions: Sequence[Condition], variants: Sequence[str], threads: Sequence[int]) -> list[Condition]:
    """The same on every variant with every number of threads; one variant's stand together."""
    return [
        replace(one, name=f"{one.name}, {variant}, {count} thread{'s' * (count > 1)}", variant=variant, threads=count)
        for variant in variants
        for count in threads
        for one in conditions
    ]
