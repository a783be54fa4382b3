"""A count that fades: how much something was used lately."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class DecayedCount:
    """Events, each counted as exp(-age / memory_s)."""

    memory_s: float
    value: float = 0.0
    time: float = 0.0  # at which the value holds

    def at(self, now: float) -> float:
        return self.value * math.exp(-max(0.0, now - self.time) / self.memory_s)

    def plus_one(self, now: float) -> "DecayedCount":
        return DecayedCount(self.memory_s, self.at(now) + 1.0, now)
