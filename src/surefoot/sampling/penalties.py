"""Penalties on tokens that occurred before.

    repetition, prompt and answer: x / r if x > 0, else x * r
    frequency, answer: x - f * count
    presence, answer: x - p if count > 0

in this order, each a separate operation in float32, so that the bits depend on the request alone.
"""

from collections.abc import Sequence

import numpy as np

from surefoot.core import SamplingParams
from surefoot.ops.arrays import F32
from surefoot.sampling.seen import SeenTokens


def has_penalties(params: SamplingParams) -> bool:
    return (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)


def apply_penalties(
    logits: F32, rows: Sequence[int], params: Sequence[SamplingParams], seen: Sequence[SeenTokens]
) -> None:
    """Applies each request's penalties to its row, in place."""
    lengths = [len(tokens) for tokens in seen]

    def spread(values: Sequence[float]) -> F32:
        return np.repeat(np.array(values, np.float32), lengths)

    where = np.repeat(np.array(rows, np.int64), lengths), np.concatenate([tokens.ids for tokens in seen])
    counts = np.concatenate([tokens.counts for tokens in seen])
    repetition = spread([each.repetition_penalty for each in params])
    x = logits[where]
    x = np.where(x > 0, x / repetition, x * repetition)
    x -= spread([each.frequency_penalty for each in params]) * counts
    x -= spread([each.presence_penalty for each in params]) * (counts > 0)
    logits[where] = x
