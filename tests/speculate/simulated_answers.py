"""The depth controller on a simulated machine, with drafters of known acceptance rates.

python -m tests.speculate.simulated_answers      steady drafters, and one whose acceptance rate differs by sample
"""

import random
from itertools import count
from statistics import fmean
from typing import NamedTuple

from surefoot.core import SampleKey
from surefoot.speculate import DepthController, DraftOffer

FEW_ROWS_MS = (0.0, 49.7, 53.8, 64.7, 75.0, 80.0, 83.0, 85.0, 87.0)  # by rows; a model of 1.5 B weights on two cores
DRAFT_MS = 2.5  # per drafted token


class SimulatedAnswer(NamedTuple):
    drafting_share: float  # of all passes, those with drafts
    speedup: float  # over decoding without drafts


def few_rows_ms(num_tokens: int) -> float:
    return FEW_ROWS_MS[num_tokens] if num_tokens < len(FEW_ROWS_MS) else 87.0 + 4 * (num_tokens - 8)


class Simulation:
    """Samples that run one after the other, each with its own acceptance rate, at the step times above."""

    def __init__(self, seed: int) -> None:
        self.controller, self.rng, self.ids = DepthController(), random.Random(seed), count()

    def answer(self, acceptance: float, num_tokens: int = 150) -> SimulatedAnswer:
        key, num_generated, depth = SampleKey(f"{next(self.ids)}"), 0, 0
        depths, elapsed_ms = list[int](), 0.0
        while num_generated < num_tokens:
            ms = few_rows_ms(1 + depth) * self.rng.uniform(0.95, 1.05)
            self.controller.observe_step(1 + depth, ms)
            num_accepted = next((index for index in range(depth) if self.rng.random() >= acceptance), depth)
            if depth:
                self.controller.observe_drafting(depth, DRAFT_MS * depth)
                self.controller.observe_verified(key, 0, depth, num_accepted)
            depths.append(depth)
            num_generated += 1 + num_accepted
            elapsed_ms += ms + DRAFT_MS * depth
            depth = self.controller.depths({key: DraftOffer(48)}, 1).get(key, 0) if self.controller.can_pay(1) else 0
        self.controller.forget(key)
        return SimulatedAnswer(fmean(depth > 0 for depth in depths), num_generated * FEW_ROWS_MS[1] / elapsed_ms)


def simulate(seed: int, acceptances: tuple[float, ...]) -> list[SimulatedAnswer]:
    simulation = Simulation(seed)
    return [simulation.answer(acceptances[number % len(acceptances)]) for number in range(16)]


def main() -> None:
    print("acceptance   passes with drafts    speed over none (one drafted token in every pass)")
    for acceptances in ((0.0,), (0.2,), (0.3,), (0.4,), (0.5,), (0.6,), (0.7,), (0.05, 0.95)):
        shares, speedups = zip(*(answer for seed in range(8) for answer in simulate(seed, acceptances)), strict=True)
        always = (1 + fmean(acceptances)) * FEW_ROWS_MS[1] / (FEW_ROWS_MS[2] + DRAFT_MS)
        print(f"{'/'.join(map(str, acceptances)):12} {fmean(shares):>18.2f} {fmean(speedups):>18.2f} ({always:.2f})")


if __name__ == "__main__":
    main()
