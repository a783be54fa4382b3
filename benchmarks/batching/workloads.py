"""Requests for what the engine's parts are compared with: static batching, and no prefix cache."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.workloads import Task, ids, scaled


def queued(count: int, vocab: int, seed: int, lengths: str, scale: float = 1.0) -> list[Task]:
    """Tasks with short prompts. lengths: key of LENGTHS, the distribution of answer lengths, which does not depend on
    the seed."""
    rng, draw = random.Random(seed), LENGTHS[lengths]
    return [Task(ids(rng, scaled(16, scale), vocab), scaled(new, scale)) for new in draw(random.Random(778), count)]


def _log_uniform(rng: random.Random, count: int) -> list[int]:
    """Lengths from 10 to 400, with uniformly distributed logarithms."""
    return [round(math.exp(rng.uniform(math.log(10), math.log(400)))) for _ in range(count)]


def _fifty_and_two_hundred(rng: random.Random, count: int) -> list[int]:
    return rng.sample([50, 200] * (count // 2), count)


def _equal(rng: random.Random, count: int) -> list[int]:
    return [100] * count


LENGTHS: dict[str, Callable[[random.Random, int], list[int]]] = {
    "log-uniform": _log_uniform,
    "50 or 200": _fifty_and_two_hundred,
    "equal": _equal,
}


def shared_prefix(count: int, vocab: int, seed: int, scale: float, cached: bool) -> list[Task]:
    """Tasks with a shared prefix of 1,024 tokens, tails of 32 and answers of 16. cached: all share a namespace."""
    rng = random.Random(seed)
    prefix = ids(rng, scaled(1024, scale), vocab)
    tails = [ids(rng, scaled(32, scale), vocab) for _ in range(count)]
    return [
        Task(prefix + tail, scaled(16, scale), "" if cached else f"{seed} {number}")
        for number, tail in enumerate(tails)
    ]


def run_static(load: EngineLoad, tasks: Sequence[Task], slots: int, drops: bool) -> float:
    """Seconds with static batching: groups of `slots` tasks; a group starts when the one before has ended.

    Every slot is computed until the group's longest answer ends, as in engines with static batching. drops: skip
    slots whose answer has ended, which no such engine does.
    """
    seconds = 0.0
    for first in range(0, len(tasks), slots):
        group = tasks[first : first + slots]
        longest = max(task.num_new for task in group)
        seconds += load.run(group if drops else [replace(task, num_new=longest) for task in group])
    return seconds
