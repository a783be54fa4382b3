"""The controller against a simulated machine and drafters of known luck.

python -m tests.speculate.answers      what it makes of steady drafters and of such whose samples differ
"""

import random
from itertools import count
from statistics import fmean

from surefoot.core import SampleKey
from surefoot.speculate import Controller, Prospect

FEW_ROWS_MS = (0.0, 49.7, 53.8, 64.7, 75.0, 80.0, 83.0, 85.0, 87.0)  # by rows; a model of 1.5 B weights on two cores

DRAFTING_MS = 2.5  # a token


def few_rows_ms(num_tokens: int) -> float:
    return FEW_ROWS_MS[num_tokens] if num_tokens < len(FEW_ROWS_MS) else 87.0 + 4 * (num_tokens - 8)


class Answers:
    """One sample after the other, each with a luck of its own, on a machine whose few rows cost as above."""

    def __init__(self, seed: int) -> None:
        self.controller, self.rng, self.ids = Controller(), random.Random(seed), count()

    def answer(self, luck: float, num_tokens: int = 150) -> tuple[float, float]:
        """The share of passes with drafts, and the speed over that of none."""
        key, num_drawn, depth = SampleKey(f"{next(self.ids)}"), 0, 0
        depths, elapsed = list[int](), 0.0
        while num_drawn < num_tokens:
            ms = few_rows_ms(1 + depth) * self.rng.uniform(0.95, 1.05)
            self.controller.observe_step(1 + depth, ms)
            right = next((place for place in range(depth) if self.rng.random() >= luck), depth)
            if depth:
                self.controller.observe_drafting(depth, DRAFTING_MS * depth)
                self.controller.observe_verified(key, 0, depth, right)
            depths.append(depth)
            num_drawn += 1 + right
            elapsed += ms + DRAFTING_MS * depth
            depth = self.controller.depths({key: Prospect(48)}, 1).get(key, 0) if self.controller.is_open(1) else 0
        self.controller.forget(key)
        return fmean(depth > 0 for depth in depths), num_drawn * FEW_ROWS_MS[1] / elapsed


def main() -> None:
    print("luck         passes with drafts    speed over none (one guess in every pass)")
    for lucks in ((0.0,), (0.2,), (0.3,), (0.4,), (0.5,), (0.6,), (0.7,), (0.05, 0.95)):
        shares, speeds = zip(*(found for seed in range(8) for found in _found(seed, lucks)), strict=True)
        always = (1 + fmean(lucks)) * FEW_ROWS_MS[1] / (FEW_ROWS_MS[2] + DRAFTING_MS)
        print(f"{'/'.join(map(str, lucks)):12} {fmean(shares):>18.2f} {fmean(speeds):>18.2f} ({always:.2f})")


def _found(seed: int, lucks: tuple[float, ...]) -> list[tuple[float, float]]:
    answers = Answers(seed)
    return [answers.answer(lucks[number % len(lucks)]) for number in range(16)]


if __name__ == "__main__":
    main()
