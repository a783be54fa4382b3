"""Logits and draws of the runner's tests."""

from collections.abc import Sequence

import numpy as np

from surefoot.core import Chunk, SampleKey
from surefoot.ops.arrays import F32
from surefoot.sampling import Drawn


def logits_of(rows: int, vocab: int) -> F32:
    return np.random.default_rng(rows).standard_normal((rows, vocab), dtype=np.float32)


def drafted(token: int, drafts: Sequence[int], start: int = 9) -> Chunk:
    """A chunk that decodes: the last token, and drafts after it."""
    return Chunk(SampleKey("a"), start, (token, *drafts), (), 1 + len(drafts), (0,))


def drawn(*tokens: int) -> list[Drawn]:
    return [Drawn(token) for token in tokens]
