"""Simulated time: what happens when, in order."""

import heapq
from collections.abc import Callable
from itertools import count

Act = Callable[[float], None]  # called with the time


class Timeline:
    """Acts at their times; those of one time in the order in which they were added."""

    def __init__(self) -> None:
        self._acts: list[tuple[float, int, Act]] = []
        self._order = count()

    def at(self, time_s: float, act: Act) -> None:
        heapq.heappush(self._acts, (time_s, next(self._order), act))

    def run(self, until_s: float) -> None:
        """Acts may add others."""
        while self._acts:
            now, _, act = heapq.heappop(self._acts)
            if now > until_s:
                break
            act(now)
