"""Counts the work of a step: bytes of weights, products of matrices and of attention, for any number of rows.

All of it is known from a model's outline, before a weight is read.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from surefoot.models.config import ModelConfig, SharedKv
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts
from surefoot.models.linear import EmbeddingTable
from surefoot.models.workspace import Matrix
from surefoot.ops import PackedWeights, WeightFormat


@dataclass(frozen=True)
class MatrixUse:
    """A matrix that rows are multiplied with; with experts, all experts' matrices of one layer."""

    n: int  # outputs
    k: int  # columns
    format: WeightFormat | None  # None: float32
    limbs: int  # of its inputs
    nbytes: int  # of one expert
    num_experts: int = 1
    top_k: int = 1  # experts that a row goes through
    count: int = 1  # matrices that are used alike

    def experts_of(self, num_rows: float) -> float:
        """The expected number of experts that these rows go through, if each is equally likely."""
        return self.num_experts * (1 - math.pow(1 - self.top_k / self.num_experts, num_rows))

    @property
    def read_bytes(self) -> float:
        """Bytes that one row reads."""
        return self.count * self.top_k * self.nbytes

    @property
    def products(self) -> int:
        """Products of limbs and weights for a row."""
        return self.count * self.top_k * self.n * self.k * self.limbs


@dataclass(frozen=True)
class AttentionUse:
    """Attention of all layers with the same window."""

    window: int  # tokens that a token sees; 0: all before it
    products: int  # for a row and a token of its context
    nbytes: int  # of keys and values that are read for a token of context


@dataclass(frozen=True)
class ModelWork:
    """What a model computes and reads, for any rows."""

    matrices: tuple[MatrixUse, ...]  # for every row
    head: tuple[MatrixUse, ...]  # for rows whose logits are wanted
    attention: tuple[AttentionUse, ...]
    state_bytes: int  # that a request's rows read and write
    vocab_size: int

    @property
    def num_elements(self) -> float:
        """Inputs and outputs of all matrices for a row: what norms, activations and rotations touch."""
        return sum(use.count * use.top_k * (use.n + use.k) for use in self.matrices)

    @property
    def num_matrices(self) -> int:
        return sum(use.count for use in self.matrices)

    def exchanged_bytes(self, num_nodes: int) -> float:
        """Bytes of a row's activations that the threads of each NUMA node use: all inputs of all matrices, and an equal
        part of the outputs."""
        return sum(use.count * use.top_k * (use.limbs * use.k + 4 * use.n / num_nodes) for use in self.matrices)


def model_work(model: Model, kv_bytes: Mapping[int, int]) -> ModelWork:
    """kv_bytes: bytes that a token keeps, by window."""
    return ModelWork(
        _grouped(_uses(model.layers)),
        _grouped(_uses((model.norm, model.head))),
        _attention(model.config, kv_bytes),
        model.config.state_bytes,
        model.config.vocab_size,
    )


def weight_bytes(model: Model) -> int:
    """Bytes of all weights in memory: embeddings too, and all experts."""
    parts = (model.layers, model.norm, model.head, model.drafting)
    head = {id(matrix) for matrix in model.head.matrices}
    tables = [*_tables(parts), *([] if id(model.embeddings) in head else [model.embeddings])]
    return sum(use.num_experts * use.nbytes for use in _uses(parts)) + sum(table.nbytes for table in tables)


def decode_bytes(model: Model) -> int:
    """Bytes of weights that a step of one token reads: all but the embeddings; of experts, only the chosen ones."""
    return round(sum(use.read_bytes for use in _uses((model.layers, model.norm, model.head))))


def linear_products(model: Model) -> int:
    """Products of limbs and weights that a token takes in all layers; of experts, only the chosen ones."""
    return sum(use.products for use in _uses(model.layers))


def _attention(config: ModelConfig, kv_bytes: Mapping[int, int]) -> tuple[AttentionUse, ...]:
    """Layers that share another's keys read them again."""
    counts = _attention_products(config)
    readers, owners = Counter[int](), Counter[int]()
    for layer in config.attention_layers:
        window = config.kv(layer).window
        readers[window] += 1
        owners[window] += not isinstance(config.kept_layers[layer].kv, SharedKv)
    return tuple(
        AttentionUse(window, products, round(kv_bytes[window] * readers[window] / max(1, owners[window])))
        for window, products in counts.items()
    )


def _attention_products(config: ModelConfig) -> Counter[int]:
    """For a row and a token of its context, by window; without the layer that drafts."""
    layers = [config.kv(layer) for layer in config.attention_layers if layer < len(config.layers)]
    counts = Counter[int]()
    for kv in layers:
        counts[kv.window] += config.heads * (kv.key_dim + kv.value_dim)
    return counts


def _grouped(uses: Iterator[MatrixUse]) -> tuple[MatrixUse, ...]:
    """Equal matrices as one use; vectors are left out, being of no account."""
    counts = Counter(use for use in uses if use.products)
    return tuple(replace(use, count=count) for use, count in counts.items())


def _use(array: Matrix, num_experts: int, top_k: int) -> MatrixUse:
    if isinstance(array, PackedWeights):
        return MatrixUse(array.n, array.k, array.format, array.inputs.limbs, array.nbytes, num_experts, top_k)
    n, k = array.shape if array.ndim == 2 else (0, array.size)
    return MatrixUse(n, k, None, 1, array.nbytes, num_experts, top_k)


def _uses(part: Any, num_experts: int = 1, top_k: int = 1) -> Iterator[MatrixUse]:
    """Every array that is used in a part of a model. One stands for all experts, since they are alike."""
    if isinstance(part, PackedWeights | np.ndarray):
        yield _use(part, num_experts, top_k)
    elif isinstance(part, EmbeddingTable):
        return
    elif isinstance(part, Experts):
        yield from _uses(part.gate)
        for run in (*part.gate_up.parts, *part.down.parts):
            yield from _uses((run.experts[0], *(run.biases or ())[:1]), part.num_experts, part.router.top_k)
    else:
        for member in _members(part):
            yield from _uses(member, num_experts, top_k)


def _tables(part: Any) -> Iterator[Matrix]:
    """Tables of which a token reads one row."""
    if isinstance(part, EmbeddingTable):
        yield part.matrix
    else:
        for member in _members(part):
            yield from _tables(member)


def _members(part: Any) -> Iterator[Any]:
    if isinstance(part, tuple):
        yield from part
    elif is_dataclass(part):
        yield from (getattr(part, field.name) for field in fields(part))
