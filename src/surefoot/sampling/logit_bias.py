"""Adds a request's logit bias."""

from collections.abc import Mapping

import numpy as np

from surefoot.ops.arrays import F32


def apply_bias(logits: F32, bias: Mapping[int, float]) -> None:
    """Adds the bias to one row, in place. Ids beyond the vocabulary are ignored."""
    ids = np.fromiter((token for token in bias if token < len(logits)), np.int64)
    logits[ids] += np.array([bias[int(token)] for token in ids], np.float32)
