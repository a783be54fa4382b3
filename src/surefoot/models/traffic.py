"""Counts the products per token and the bytes of weights per step, which bound the speed of prefill and decode."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts
from surefoot.models.linear import EmbeddingTable
from surefoot.models.workspace import Matrix
from surefoot.ops import PackedWeights

ATTENTION_COST = 3.6  # cost of a product in attention, in products of a limb and a weight; measured on SmolLM2 and Qwen


def decode_bytes(model: Model) -> int:
    """Bytes of weights that a step of one token reads: all but the embeddings; of experts, only the chosen ones."""
    parts = (model.layers, model.norm, model.head)
    return round(sum(share * array.nbytes for share, array in _arrays(parts)))


def linear_products(model: Model) -> int:
    """Products of limbs and weights that a token takes in all layers; of experts, only the chosen ones."""
    return round(sum(share * _num_products(array) for share, array in _arrays(model.layers)))


def row_context(model: Model) -> float:
    """Context length at which attending to earlier tokens costs as much as the matrix products of the token itself.
    Layers with a window or a state are not counted."""
    config = model.config
    layers = [config.kv(layer) for layer in config.attention_layers]
    products = sum(config.heads * (kv.key_dim + kv.value_dim) for kv in layers if not kv.window)
    return linear_products(model) / (ATTENTION_COST * products) if products else math.inf


def _num_products(array: Matrix) -> int:
    if isinstance(array, PackedWeights):
        return array.n * array.k * array.inputs.limbs
    return array.size if array.ndim == 2 else 0


def _arrays(part: Any, share: float = 1.0) -> Iterator[tuple[float, Matrix]]:
    """Every array in a part of a model, with the share of tokens that use it."""
    if isinstance(part, PackedWeights | np.ndarray):
        yield share, part
    elif isinstance(part, EmbeddingTable):
        return
    elif isinstance(part, Experts):
        yield from _arrays(part.gate, share)
        yield from _arrays((part.gate_up, part.down), share * part.router.top_k / part.num_experts)
    elif isinstance(part, tuple):
        for member in part:
            yield from _arrays(member, share)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _arrays(getattr(part, field.name), share)
