"""How many weights a token passes by, and how many bytes they are: what bounds the speed of prefill and decoding."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts
from surefoot.models.workspace import Matrix
from surefoot.ops import PackedWeights

ATTENTION_COST = 1.8  # of a product in attention, in products of a matrix: measured on SmolLM2 and Qwen


def decode_bytes(model: Model) -> int:
    """Weights that a step of one token reads: all but the embeddings, and of experts the chosen ones."""
    parts = (model.layers, model.norm, model.head)
    return round(sum(share * array.nbytes for share, array in _arrays(parts)))


def linear_products(model: Model) -> int:
    """Weights that every token of a prompt is multiplied with: the layers' matrices, of experts the chosen ones."""
    return round(sum(share * _num_weights(array) for share, array in _arrays(model.layers)))


def row_context(model: Model) -> float:
    """So many tokens before one cost as much as its way through the layers' matrices. A window's are not counted."""
    config = model.config
    kept = [config.kv(layer) for layer in range(len(config.layers))]
    products = sum(config.heads * (kv.key_dim + kv.value_dim) for kv in kept if not kv.window)
    return linear_products(model) / (ATTENTION_COST * products) if products else math.inf


def _num_weights(array: Matrix) -> int:
    if isinstance(array, PackedWeights):
        return array.n * array.k
    return array.size if array.ndim == 2 else 0


def _arrays(part: Any, share: float = 1.0) -> Iterator[tuple[float, Matrix]]:
    """Every array in a part of a model, with the share of tokens that pass by it."""
    if isinstance(part, PackedWeights | np.ndarray):
        yield share, part
    elif isinstance(part, Experts):
        yield from _arrays(part.gate, share)
        yield from _arrays((part.gate_up, part.down), share * part.router.top_k / part.num_experts)
    elif isinstance(part, tuple):
        for one in part:
            yield from _arrays(one, share)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _arrays(getattr(part, field.name), share)
