"""What is counted of an engine's logits. Everything in float64: a divergence may be a millionth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.arrays import F32

F64 = NDArray[np.float64]

ROWS = 8  # at a time, so that float64 copies of wide vocabularies stay small


@dataclass(frozen=True)
class Fidelity:
    """Divergence from the reference's predictions in nats, and the share of positions whose likeliest token differs."""

    mean_kl: float
    kl_99: float  # 99 of 100 positions stay below
    max_kl: float
    flips: float
    num_positions: int


@dataclass(frozen=True)
class Score:
    """perplexity_error: its standard error, as far as the text is a sample of its kind."""

    perplexity: float
    perplexity_error: float
    num_predictions: int
    fidelity: Fidelity | None


@dataclass
class Tally:
    """Collects one engine's predictions, chunk by chunk."""

    losses: list[float] = field(default_factory=list)
    divergences: list[float] = field(default_factory=list)
    num_flips: int = 0

    def add_losses(self, logits: F32, targets: Sequence[int]) -> None:
        """Row i's logits predict targets[i]."""
        for start in range(0, len(targets), ROWS):
            some = np.asarray(targets[start : start + ROWS])
            logprobs = log_softmax(logits[start : start + len(some)])
            self.losses.extend(-logprobs[np.arange(len(some)), some])

    def add_divergences(self, reference: F32, logits: F32) -> None:
        for start in range(0, len(logits), ROWS):
            rows = slice(start, start + ROWS)
            p, q = log_softmax(reference[rows]), log_softmax(logits[rows])
            self.divergences.extend((np.exp(p) * (p - q)).sum(axis=1))
            self.num_flips += int((p.argmax(axis=1) != q.argmax(axis=1)).sum())

    def score(self) -> Score:
        losses = np.array(self.losses)
        perplexity = math.exp(losses.mean())
        error = perplexity * losses.std() / math.sqrt(len(losses))
        return Score(perplexity, float(error), len(losses), self._fidelity())

    def _fidelity(self) -> Fidelity | None:
        if not self.divergences:
            return None
        kl, count = np.array(self.divergences), len(self.divergences)
        return Fidelity(
            float(kl.mean()), float(np.quantile(kl, 0.99)), float(kl.max()), self.num_flips / count, count
        )  # fmt: skip


def log_softmax(logits: F32) -> F64:
    x: F64 = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
    return x
