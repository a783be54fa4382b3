"""Penalties on tokens that were seen before.

    repetition, prompt and answer: x / r if x > 0, else x * r
    frequency, answer: x - f * count
    presence, answer: x - p if count > 0

in this order, each an operation in float32 of its own, so that the bits depend on the request alone.
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
    """Change each of the rows in place."""
    lengths = [len(one) for one in seen]

    def spread(values: Sequence[float]) -> F32:
        return np.repeat(np.array(values, np.float32), lengths)

    where = np.repeat(np.array(rows, np.int64), lengths), np.concatenate([one.ids for one in seen])
    counts = np.concatenate([one.counts for one in seen])
    repetition = spread([one.repetition_penalty for one in params])
    x = logits[where]
    x = np.where(x > 0, x / repetition, x * repetition)
    x -= spread([one.frequency_penalty for one in params]) * counts
    x -= spread([one.presence_penalty for one in params]) * (counts > 0)
    logits[where] = x
