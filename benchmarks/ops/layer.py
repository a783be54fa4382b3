"""A decoder layer and a decode step over fixed arrays, with the calls that a model makes. Both can be recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.ops.settings import FORMATS
from benchmarks.ops.shapes import ModelShape
from surefoot.ops import (
    Backend,
    Chunks,
    GluForm,
    KvCache,
    NormForm,
    PackedWeights,
    Program,
    RopeForm,
    RopeTable,
    Sampled,
    SamplingRows,
    attention,
    embed,
    empty_activations,
    empty_kv_cache,
    glu,
    huge_empty,
    inverse_frequencies,
    kv_write,
    linear,
    norm,
    pack,
    quantise,
    rope,
    rope_table,
    sample,
)
from surefoot.ops.arrays import F32, I64, empty
from surefoot.ops.random_weights import copies_of, random_weights

BLOCK_SIZE = 64  # tokens
NORM, GLU = NormForm(), GluForm()


def make_cache(backend: Backend, model: ModelShape, num_blocks: int) -> KvCache:
    """A KV cache in huge pages."""
    block = empty_kv_cache(backend, 1, BLOCK_SIZE, model.kv_heads, model.head_dim)
    data = huge_empty(block.data.nbytes * num_blocks).reshape(num_blocks, *block.data.shape[1:])
    return replace(block, data=data)


def fill_cache(backend: Backend, cache: KvCache, first: int, tokens: int) -> None:
    """Writes random keys and values of `tokens` tokens into the blocks from `first` on."""
    rng = np.random.default_rng(tokens)
    slots = first * cache.block_size + np.arange(tokens, dtype=np.int64)
    keys = rng.standard_normal((tokens, cache.kv_heads, cache.head_dim), np.float32)
    values = rng.standard_normal((tokens, cache.kv_heads, cache.value_dim), np.float32)
    kv_write(backend, cache, keys, values, slots)


def num_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_SIZE)


class LayerArrays:
    """Arrays that all layers share. `h` is the residual stream."""

    def __init__(self, backend: Backend, model: ModelShape, positions: I64) -> None:
        rows, heads_dim = len(positions), model.heads * model.head_dim
        self.h = _random(rows, model.width)
        self.normed = empty_activations(rows, model.width)
        self.qkv = _random(rows, model.heads + 2 * model.kv_heads, model.head_dim)
        self.attended = _random(rows, model.heads, model.head_dim)
        self.attended_quantised = empty_activations(rows, heads_dim)
        self.gate_up: F32 = empty((rows, 2 * model.ffn), np.float32)
        self.gated = empty_activations(rows, model.ffn)
        self.positions = positions
        self.inv_freq = inverse_frequencies(RopeForm(model.head_dim))
        self.rope: RopeTable = rope_table(backend, positions, self.inv_freq)


def _random(*shape: int) -> F32:
    array: F32 = empty(shape, np.float32)
    np.random.default_rng(shape).standard_normal(dtype=np.float32, out=array)
    return array


@dataclass(frozen=True)
class LayerWeights:
    """The matrices of a layer, and the weight of its two norms."""

    qkv: PackedWeights
    o: PackedWeights
    gate_up: PackedWeights
    down: PackedWeights
    norm: F32


def make_layers(backend: Backend, model: ModelShape, fmt: str, count: int) -> list[LayerWeights]:
    """`count` layers with the same weights, each in memory of its own."""
    ones = np.ones(model.width, np.float32)
    matrices = {name: make_copies(backend, *size, fmt, count) for name, size in model.matrices.items()}
    return [LayerWeights(norm=ones, **{name: matrices[name][i] for name in matrices}) for i in range(count)]


def make_copies(backend: Backend, n: int, k: int, fmt: str, count: int) -> Sequence[PackedWeights]:
    return copies_of(backend, pack(backend, random_weights(n, k, FORMATS[fmt])), count)


@dataclass(frozen=True)
class DecoderLayer:
    """The calls of a layer, in three parts."""

    backend: Backend
    model: ModelShape
    rows: LayerArrays
    weights: LayerWeights
    cache: KvCache
    chunks: Chunks
    slots: I64  # in the KV cache, for the rows' keys and values

    def before_attention(self) -> None:
        backend, model, rows = self.backend, self.model, self.rows
        norm(backend, NORM, rows.h, self.weights.norm, quantised=rows.normed)
        linear(backend, rows.normed, self.weights.qkv, out=rows.qkv.reshape(len(rows.qkv), -1))
        rotated = model.heads + model.kv_heads  # keys follow queries, so one call rotates both
        rope(backend, rows.qkv[:, :rotated], rows.rope)
        kv_write(backend, self.cache, rows.qkv[:, model.heads : rotated], rows.qkv[:, rotated:], self.slots)

    def attention(self) -> None:
        queries = self.rows.qkv[:, : self.model.heads]
        scale = self.model.head_dim**-0.5
        attention(self.backend, queries, self.cache, self.chunks, scale, out=self.rows.attended)

    def after_attention(self) -> None:
        backend, ffn, rows, weights = self.backend, self.model.ffn, self.rows, self.weights
        flat = rows.attended.reshape(len(rows.attended), -1)
        quantise(backend, flat, out=rows.attended_quantised)
        linear(backend, rows.attended_quantised, weights.o, residual=rows.h, out=rows.h)
        norm(backend, NORM, rows.h, weights.norm, quantised=rows.normed)
        linear(backend, rows.normed, weights.gate_up, out=rows.gate_up)
        glu(backend, GLU, rows.gate_up[:, :ffn], rows.gate_up[:, ffn:], quantised=rows.gated)
        linear(backend, rows.gated, weights.down, residual=rows.h, out=rows.h)

    def rest(self) -> None:
        """Everything except attention."""
        self.before_attention()
        self.after_attention()

    def whole(self) -> None:
        self.before_attention()
        self.attention()
        self.after_attention()


def prefill_layer(backend: Backend, model: ModelShape, weights: LayerWeights, tokens: int) -> DecoderLayer:
    """A layer that prefills `tokens` tokens of a request in one chunk."""
    positions = np.arange(tokens, dtype=np.int64)
    cache = make_cache(backend, model, num_blocks(tokens))
    table = np.arange(cache.num_blocks, dtype=np.int64)[None]
    chunks = Chunks(np.array([0, tokens]), np.array([tokens]), table)
    return DecoderLayer(backend, model, LayerArrays(backend, model, positions), weights, cache, chunks, positions)


class DecodeStep:
    """A decode step of a request through a whole model, from a token's id to the next token's id."""

    def __init__(self, backend: Backend, model: ModelShape, fmt: str, context: int) -> None:
        self._backend = backend
        self._position = np.array([context - 1], np.int64)
        self._rows = LayerArrays(backend, model, self._position)
        # A step reads one row of the table, so a small table is enough.
        self._embeddings = np.zeros((min(model.vocab, 1024), model.width), np.float32)
        self._id = np.zeros(1, np.int64)
        self._ones = np.ones(model.width, np.float32)
        self._head = make_copies(backend, model.vocab, model.width, fmt, 1)[0]
        self._logits: F32 = empty((1, model.vocab), np.float32)
        self._sampling = SamplingRows.of(1)
        self._sampled = Sampled(np.zeros(1, np.int64), empty((1,), np.float32))
        blocks = num_blocks(context)
        self._chunks = Chunks(np.array([0, 1]), np.array([context]), np.arange(blocks, dtype=np.int64)[None])
        self._layers = [
            self._layer(model, weights, blocks) for weights in make_layers(backend, model, fmt, model.layers)
        ]

    def _layer(self, model: ModelShape, weights: LayerWeights, blocks: int) -> DecoderLayer:
        cache = make_cache(self._backend, model, blocks)
        fill_cache(self._backend, cache, 0, blocks * BLOCK_SIZE)
        return DecoderLayer(self._backend, model, self._rows, weights, cache, self._chunks, self._position)

    def prepare(self) -> None:
        """Sets the token and its position, which Python must do before each step, even a replayed one."""
        self._id[0] = self._sampled.tokens[0] % len(self._embeddings)
        self._position[0] = self._chunks.lengths[0] - 1
        self._chunks.lengths[0] = self._position[0] + 1

    def run(self) -> None:
        backend, rows = self._backend, self._rows
        embed(backend, self._id, self._embeddings, out=rows.h)
        rope_table(backend, rows.positions, rows.inv_freq, out=rows.rope)
        for layer in self._layers:
            layer.whole()
        norm(backend, NORM, rows.h, self._ones, quantised=rows.normed)
        linear(backend, rows.normed, self._head, out=self._logits)
        sample(backend, self._logits, self._sampling, out=self._sampled)

    def record(self) -> Program:
        with self._backend.record() as program:
            self.run()
        return program
