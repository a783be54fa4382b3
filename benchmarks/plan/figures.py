"""The figures of `python -m benchmarks plan`: how far predictions are off."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.bench.harness.figures import Figure, Target

MIB = 1 << 20
MEDIAN_BOUND, WORST_BOUND, MEMORY_BOUND = 0.10, 0.25, 0.05
MEMORY_SLACK = 100 * MIB  # an error of so few bytes counts as none


@dataclass(frozen=True)
class Compared:
    """A prediction beside its measurement."""

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """As a part of what was measured."""
        return abs(self.predicted - self.measured) / self.measured


def plan_figures(cases: Sequence[Compared], memory: Compared) -> list[Figure]:
    errors = [case.error for case in cases]
    memory_error = 0.0 if abs(memory.predicted - memory.measured) <= MEMORY_SLACK else memory.error
    return [
        Figure("median_error", "predicted times: the median error", statistics.median(errors), _at_most(MEDIAN_BOUND)),
        Figure("worst_error", "predicted times: the largest error", max(errors), _at_most(WORST_BOUND)),
        Figure("memory_error", "predicted memory, beyond 100 MiB", memory_error, _at_most(MEMORY_BOUND)),
    ]


def _at_most(bound: float) -> Target:
    return Target(bound, at_least=False)
