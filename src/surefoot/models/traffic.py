"""How many products a token takes and how many bytes its weights are: what bounds the speed of prompts and answers."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts
from surefoot.models.workspace import Matrix
from surefoot.ops import PackedWeights

ATTENTION_COST = 3.6  # of a product in attention, in products of a limb with a weight: measured on SmolLM2 and Qwen


def decode_bytes(model: Model) -> int:
    """Weights that a step of one token reads: all but the embeddings, and of experts the chosen ones."""
    parts = (model.layers, model.norm, model.head)
    return round(sum(share * array.nbytes for share, array in _arrays(parts)))


def linear_products(model: Model) -> int:
    """Products of a token's limbs with weights, on its way through the layers; of experts the chosen ones count."""
    return round(sum(share * _num_products(array) for share, array in _arrays(model.layers)))


def row_context(model: Model) -> float:
    """So many tokens before one cost as much as its way through the layers' matrices. A window's are not counted."""
    config = model.config
    kept = [config.kv(layer) for layer in range(len(config.layers))]
    products = sum(config.heads * (kv.key_dim + kv.value_dim) for kv in kept if not kv.window)
    return linear_products(model) / (ATTENTION_COST * products) if products else math.inf


def _num_products(array: Matrix) -> int:
    if isinstance(array, PackedWeights):
        return array.n * array.k * array.inputs.limbs
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
