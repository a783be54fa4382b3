"""Scores an engine's logits. All arithmetic is in float64: a divergence may be a millionth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.arrays import F32

F64 = NDArray[np.float64]

ROWS = 8  # converted at a time: float64 copies of large vocabularies stay small


@dataclass(frozen=True)
class Fidelity:
    """Divergence from the reference's predictions."""

    mean_kl: float  # nats
    kl_99: float  # nats, the 99th percentile
    max_kl: float  # nats
    flips: float  # share of positions whose likeliest token differs
    num_positions: int  # compared positions


@dataclass(frozen=True)
class Score:
    """How well an engine predicts the text, and how close it is to the reference."""

    perplexity: float  # over the scored positions
    perplexity_error: float  # standard error, with the text as a sample of its kind
    num_predictions: int  # scored positions
    fidelity: Fidelity | None  # None for the reference itself


@dataclass
class Tally:
    """Counts one engine's predictions, chunk by chunk."""

    losses: list[float] = field(default_factory=list)  # -log p of each scored token, in nats
    divergences: list[float] = field(default_factory=list)  # KL from the reference at each position, in nats
    num_flips: int = 0  # positions whose likeliest token is not the reference's

    def add_losses(self, logits: F32, targets: Sequence[int]) -> None:
        """Adds the losses of `targets`; row i of the logits predicts targets[i]."""
        for start in range(0, len(targets), ROWS):
            rows = np.asarray(targets[start : start + ROWS])
            logprobs = log_softmax(logits[start : start + len(rows)])
            self.losses.extend(-logprobs[np.arange(len(rows)), rows])

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
