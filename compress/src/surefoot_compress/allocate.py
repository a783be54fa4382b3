"""Chooses one format for each matrix under a byte budget with the least total loss: a multiple-choice knapsack.

Dynamic programming over bytes solves it exactly. Bytes are counted in the largest unit that divides every size. If that
unit would make the table too large, sizes are rounded up to a coarser unit: the answer still fits the budget, and is
optimal for the rounded sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot_compress.errors import CompressError

MAX_STEPS = 200_000  # units that the budget is divided into, at most


@dataclass(frozen=True)
class FormatOption:
    """One candidate format of a matrix, with its size and loss."""

    format: str  # its name, as `format_names` spells it
    nbytes: int  # of the whole matrix, scales included
    loss: float  # nats of KL at the model's output, as `sensitivity` measures it


@dataclass(frozen=True)
class Allocation:
    """The chosen formats and their totals."""

    formats: dict[str, str]  # name of the format by name of the matrix
    nbytes: int  # of all matrices together
    loss: float  # sum over all matrices


def allocate(options: Mapping[str, Sequence[FormatOption]], budget: int) -> Allocation:
    """The choice with the least sum of losses that takes at most `budget` bytes; `options` are by matrix."""
    if not options:
        raise CompressError("no matrix has rows that one of the formats offered divides: offer others")
    smallest = sum(min(option.nbytes for option in candidates) for candidates in options.values())
    if smallest > budget:
        raise CompressError(f"{budget} bytes are too few: the smallest formats take {smallest}")
    useful = {name: _undominated(candidates) for name, candidates in options.items()}
    unit = _unit(useful, budget)
    steps = budget // unit
    if sum(min(-(-option.nbytes // unit) for option in candidates) for candidates in useful.values()) > steps:
        raise CompressError(
            f"{budget} bytes are too few: the smallest formats take {smallest}, and rounding a little more"
        )
    best = np.zeros(steps + 1)
    picks: list[np.ndarray] = []
    for candidates in useful.values():
        best, pick = _add_matrix(best, candidates, unit)
        picks.append(pick)
    return _trace_back(useful, picks, int(best.argmin()), unit)


def _undominated(candidates: Sequence[FormatOption]) -> list[FormatOption]:
    """The options that no other option beats in both bytes and loss."""
    kept: list[FormatOption] = []
    for option in sorted(candidates, key=lambda option: (option.nbytes, option.loss)):
        if not kept or option.loss < kept[-1].loss:
            kept.append(option)
    return kept


def _unit(options: Mapping[str, Sequence[FormatOption]], budget: int) -> int:
    unit = math.gcd(*(option.nbytes for candidates in options.values() for option in candidates))
    return max(unit, -(-budget // MAX_STEPS))


def _add_matrix(best: np.ndarray, candidates: Sequence[FormatOption], unit: int) -> tuple[np.ndarray, np.ndarray]:
    """best[b] is the least loss of the matrices so far in at most b units. Returns it with one matrix more, and the
    number of the option chosen for that matrix at each b."""
    now, pick = np.full_like(best, np.inf), np.zeros(len(best), np.uint8)
    for number, option in enumerate(candidates):
        units = -(-option.nbytes // unit)
        if units >= len(best):
            continue
        tried = np.full_like(best, np.inf)
        tried[units:] = best[: len(best) - units] + option.loss
        better = tried < now
        now[better], pick[better] = tried[better], number
    return now, pick


def _trace_back(
    options: Mapping[str, Sequence[FormatOption]], picks: Sequence[np.ndarray], at: int, unit: int
) -> Allocation:
    formats: dict[str, str] = {}
    nbytes, loss = 0, 0.0
    for name, pick in zip(reversed(list(options)), reversed(picks), strict=True):
        option = options[name][int(pick[at])]
        formats[name], nbytes, loss = option.format, nbytes + option.nbytes, loss + option.loss
        at -= -(-option.nbytes // unit)
    return Allocation(formats, nbytes, loss)
