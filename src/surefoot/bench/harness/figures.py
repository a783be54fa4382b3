"""Figures: the headline numbers of a benchmark, with their targets."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from surefoot.bench.harness.timing import Label, Measurement

Measurements = Mapping[str, Measurement]


@dataclass(frozen=True)
class Target:
    """A bound that a figure should reach."""

    bound: float
    at_least: bool = True  # False: the figure should be at most the bound

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True)
class Figure:
    """A measured number with its meaning."""

    name: str
    meaning: str
    value: float | None  # None if it could not be measured
    target: Target | None = None
    reason: str | None = None  # for the missing value
    samples: tuple[float, ...] = ()  # one a round, of which the value is the median

    @property
    def met(self) -> bool | None:
        """Whether it meets its target; None without a target or a value."""
        return None if self.target is None or self.value is None else self.target.met_by(self.value)


class MissingError(LookupError):
    """The cases of a figure were not measured. The message says why."""


@dataclass(frozen=True)
class Question:
    """A figure to be computed from the measurements."""

    name: str
    meaning: str
    target: Target | None
    answer: Callable[[], float | Sequence[float]]  # a sequence: a sample each round. Raises MissingError

    def figure(self) -> Figure:
        try:
            answer = self.answer()
            if isinstance(answer, Sequence):
                return Figure(self.name, self.meaning, median(answer), self.target, samples=tuple(answer))
            return Figure(self.name, self.meaning, answer, self.target)
        except MissingError as missing:
            return Figure(self.name, self.meaning, None, self.target, str(missing))


def select(measurements: Measurements, kind: str, engine: str = "surefoot", **labels: Label) -> list[Measurement]:
    """The measurements of cases with this kind, engine and labels. Raises MissingError if any was not measured."""
    selected = [
        m
        for m in measurements.values()
        if (m.case.kind, m.case.engine) == (kind, engine) and labels.items() <= m.case.labels.items()
    ]
    if not selected:
        raise MissingError("not part of this run")
    if not all(m.samples for m in selected):
        raise MissingError("not measured within the time: give more with --seconds")
    return selected


def median(values: Sequence[float]) -> float:
    if not values:
        raise MissingError("no round has all of its cases: give more time with --seconds")
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of all values does not exceed."""
    return sorted(values)[ceil(share * len(values)) - 1] if values else None
