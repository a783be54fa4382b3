"""How many bytes of weights a token passes by: what bounds the speed of decoding."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts
from surefoot.ops import PackedWeights


def decode_bytes(model: Model) -> int:
    """Weights that a step of one token reads: all but the embeddings, and of experts the chosen ones."""
    return round(sum(_bytes_in((model.layers, model.norm, model.head))))


def _bytes_in(part: Any) -> Iterator[float]:
    if isinstance(part, PackedWeights | np.ndarray):
        yield part.nbytes
    elif isinstance(part, Experts):
        yield from _bytes_in(part.gate)
        share = part.router.top_k / part.num_experts
        yield from (share * nbytes for nbytes in _bytes_in((part.gate_up, part.down)))
    elif isinstance(part, tuple):
        for one in part:
            yield from _bytes_in(one)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _bytes_in(getattr(part, field.name))
