"""Orders in which one client asks for models of one size, and the loads that other rules than ours would need."""

import math
import random
import string
from collections.abc import Sequence

PHASE = 30  # requests after which another model is the most used


def skewed(rng: random.Random, num_models: int, length: int) -> str:
    """The nth model is used a nth as much as the first."""
    return "".join(rng.choices(_names(num_models), _shares(num_models), k=length))


def hot(rng: random.Random, num_models: int, length: int) -> str:
    """Two models are used all the time, the others now and then."""
    return "".join(rng.choices(_names(num_models), [8, 8, *[1] * (num_models - 2)], k=length))


def in_phases(rng: random.Random, num_models: int, length: int) -> str:
    """Which model is used how much changes."""
    shares = _shares(num_models)
    pattern = ""
    while len(pattern) < length:
        rng.shuffle(shares)
        pattern += "".join(rng.choices(_names(num_models), shares, k=PHASE))
    return pattern[:length]


def _names(num_models: int) -> str:
    return string.ascii_uppercase[:num_models]


def _shares(num_models: int) -> list[float]:
    return [1 / (rank + 1) for rank in range(num_models)]


def num_loads_by_order(pattern: Sequence[str], num_fit: int, *, is_renewed_by_use: bool) -> int:
    """The first of a queue goes: first in first out, or, if use puts a model at its end, least recently used."""
    queue: list[str] = []
    num_loads = 0
    for model in pattern:
        is_hit = model in queue
        num_loads += not is_hit
        if is_hit and is_renewed_by_use:
            queue.remove(model)
        if not is_hit or is_renewed_by_use:
            queue.append(model)
        del queue[:-num_fit]
    return num_loads


def num_loads_with_hindsight(pattern: Sequence[str], num_fit: int) -> int:
    """The least that is possible: the model goes whose next request is the farthest away (Belady)."""
    loaded: set[str] = set()
    num_loads = 0
    for index, model in enumerate(pattern):
        if model in loaded:
            continue
        num_loads += 1
        if len(loaded) == num_fit:
            loaded.remove(max(loaded, key=lambda other, rest=pattern[index:]: _next_use(rest, other)))
        loaded.add(model)
    return num_loads


def _next_use(rest: Sequence[str], model: str) -> float:
    return rest.index(model) if model in rest else math.inf
