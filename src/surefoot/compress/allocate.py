"""One format for each matrix under a byte budget, with the least total loss: a multiple-choice knapsack.

Solved exactly, by dynamic programming over bytes, counted in the largest unit that divides every size. Where that unit
is so small that the table would be huge, sizes are rounded up to a coarser one: the answer then always fits, and is
exact for the rounded sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.compress.later import CompressError

MAX_STEPS = 200_000  # of the budget


@dataclass(frozen=True)
class Option:
    """What a matrix weighs and loses in one format."""

    format: str
    nbytes: int
    loss: float


@dataclass(frozen=True)
class Choice:
    formats: dict[str, str]
    nbytes: int
    loss: float


def allocate(options: Mapping[str, Sequence[Option]], budget: int) -> Choice:
    """`options` by matrix. The least sum of losses whose bytes are at most the budget."""
    if not options:
        raise CompressError("none of the formats offered divides the rows of any matrix")
    least = sum(min(option.nbytes for option in some) for some in options.values())
    if least > budget:
        raise CompressError(f"{budget} bytes are too few: the smallest formats take {least}")
    useful = {name: _useful(some) for name, some in options.items()}
    unit = _unit(useful, budget)
    steps = budget // unit
    if sum(min(-(-option.nbytes // unit) for option in some) for some in useful.values()) > steps:
        raise CompressError(f"{budget} bytes are too few: the smallest formats take {least}, rounded up a little more")
    best = np.zeros(steps + 1)
    picks: list[np.ndarray] = []
    for some in useful.values():
        best, pick = _with(best, some, unit)
        picks.append(pick)
    return _read_back(useful, picks, int(best.argmin()), unit)


def _useful(some: Sequence[Option]) -> list[Option]:
    """Without those that another beats in both bytes and loss."""
    kept: list[Option] = []
    for option in sorted(some, key=lambda one: (one.nbytes, one.loss)):
        if not kept or option.loss < kept[-1].loss:
            kept.append(option)
    return kept


def _unit(options: Mapping[str, Sequence[Option]], budget: int) -> int:
    unit = math.gcd(*(option.nbytes for some in options.values() for option in some))
    return max(unit, -(-budget // MAX_STEPS))


def _with(best: np.ndarray, some: Sequence[Option], unit: int) -> tuple[np.ndarray, np.ndarray]:
    """best[b]: the least loss of the matrices so far in at most b units; now with one matrix more."""
    now, pick = np.full_like(best, np.inf), np.zeros(len(best), np.uint8)
    for number, option in enumerate(some):
        units = -(-option.nbytes // unit)
        if units >= len(best):
            continue
        tried = np.full_like(best, np.inf)
        tried[units:] = best[: len(best) - units] + option.loss
        better = tried < now
        now[better], pick[better] = tried[better], number
    return now, pick


def _read_back(options: Mapping[str, Sequence[Option]], picks: Sequence[np.ndarray], at: int, unit: int) -> Choice:
    formats: dict[str, str] = {}
    nbytes, loss = 0, 0.0
    for name, pick in zip(reversed(list(options)), reversed(picks), strict=True):
        option = options[name][int(pick[at])]
        formats[name], nbytes, loss = option.format, nbytes + option.nbytes, loss + option.loss
        at -= -(-option.nbytes // unit)
    return Choice(formats, nbytes, loss)
