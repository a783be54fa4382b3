"""Weights on their way from a checkpoint into a model: fused, packed, or left in float."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import ModelConfig, SharedKv
from surefoot.models.decoder import Layer, Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.linear import ExpertLinear, ExpertPart, Linear, Part
from surefoot.models.step import Norm, Rope
from surefoot.models.workspace import Matrix
from surefoot.ops import Backend, IntegerWeights, RopeForm, WeightFormat, pack
from surefoot.ops.arrays import F32, Array
from surefoot.weights.checkpoint import Checkpoint


class Loader:
    """Reads a checkpoint's tensors by their GGUF names, without `.weight`.

    float_format: what float matrices become; None leaves every matrix in float32, for evaluation."""

    def __init__(
        self, backend: Backend, checkpoint: Checkpoint, config: ModelConfig, float_format: WeightFormat | None
    ) -> None:
        self.backend = backend
        self.checkpoint = checkpoint
        self.config = config
        self._format = float_format
        self._ropes: dict[RopeForm, Rope] = {}

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.checkpoint.tensors

    def vector(self, name: str) -> F32:
        return np.ascontiguousarray(self.checkpoint.floats(name))

    def bias(self, name: str) -> F32 | None:
        return self.vector(f"{name}.bias") if f"{name}.bias" in self.checkpoint.tensors else None

    def norm(self, name: str) -> Norm:
        return Norm(self.config.norm, self.vector(f"{name}.weight"))

    def rope(self, form: RopeForm | None) -> Rope | None:
        if form is None:
            return None
        if form not in self._ropes:
            self._ropes[form] = Rope.of(form)
        return self._ropes[form]

    def matrix(self, name: str) -> Matrix:
        return self.linear(name).parts[0].matrix

    def linear(self, *names: str) -> Linear:
        """The matrices side by side, with their biases where the checkpoint has some."""
        biases = [self.bias(name) for name in names]
        if self._format is None:
            floats = [self.vector(f"{name}.weight") for name in names]
            return Linear((Part(_joined(floats), _joined_biases(biases, [len(one) for one in floats])),))
        weights = [self.checkpoint.integers(f"{name}.weight", self._format) for name in names]
        return Linear(tuple(self._parts(weights, biases)))

    def _parts(self, weights: Sequence[IntegerWeights], biases: Sequence[F32 | None]) -> list[Part]:
        parts = []
        for run in runs_of_one_form(weights):
            fused = join([weights[i] for i in run])
            bias = _joined_biases([biases[i] for i in run], [weights[i].shape[0] for i in run])
            parts.append(Part(pack(self.backend, fused), bias))
        return parts

    def float_linear(self, name: str) -> Linear:
        """A matrix that is better not rounded: a router's."""
        return Linear((Part(self.vector(f"{name}.weight"), self.bias(name)),))

    def experts(self, *names: str) -> ExpertLinear:
        """Tensors [experts, rows, columns], side by side."""
        biases = [self.bias(name) for name in names]
        if self._format is None:
            floats = np.concatenate([self.checkpoint.floats(f"{name}.weight") for name in names], axis=1)
            return ExpertLinear((ExpertPart(tuple(floats), _by_expert(biases)),))
        weights = [self.checkpoint.experts(f"{name}.weight", self._format) for name in names]
        parts = []
        for run in runs_of_one_form([one[0] for one in weights]):
            fused = [join(several) for several in zip(*(weights[i] for i in run), strict=True)]
            packed = tuple(pack(self.backend, one) for one in fused)
            parts.append(ExpertPart(packed, _by_expert([biases[i] for i in run])))
        return ExpertLinear(tuple(parts))

    # ---- parts that most families share ----

    def attention(self, layer: int) -> Attention:
        """Attention with whatever the checkpoint has for it: norms of queries and keys, biases, sinks."""
        config, name = self.config, f"blk.{layer}.attn"
        kv, keeps = config.kv(layer), not isinstance(config.layers[layer].kv, SharedKv)
        separate = (f"{name}_q", f"{name}_k", f"{name}_v") if keeps else (f"{name}_q",)
        sinks = f"{name}_sinks.weight"
        return Attention(
            layer=layer,
            heads=config.heads,
            kv_heads=kv.heads,
            head_dim=kv.key_dim,
            scale=config.scale,
            qkv=self.linear(f"{name}_qkv") if self.has(f"{name}_qkv") else self.linear(*separate),
            out=self.linear(f"{name}_output"),
            rope=self.rope(config.layers[layer].rope),
            window=kv.window,
            softcap=config.attention_softcap,
            query_norm=self.norm(f"{name}_q_norm") if self.has(f"{name}_q_norm") else None,
            key_norm=self.norm(f"{name}_k_norm") if self.has(f"{name}_k_norm") else None,
            sinks=self.vector(sinks) if sinks in self.checkpoint.tensors else None,
            keeps=keeps,
        )

    def feed_forward(self, layer: int, suffix: str = "") -> FeedForward:
        """Gate, up and down; some files have gate and up as one, under up's name."""
        gate, up, down = (f"blk.{layer}.ffn_{part}{suffix}" for part in ("gate", "up", "down"))
        gate_up = self.linear(gate, up) if self.has(gate) else self.linear(up)
        return FeedForward(self.config.glu, gate_up, self.linear(down))

    def model(self, layers: Sequence[Layer]) -> Model:
        """The layers between the embeddings and the head, which are one matrix if the checkpoint has no other."""
        embeddings = self.linear("token_embd")
        head = self.linear("output") if self.has("output") else embeddings
        matrix = embeddings.parts[0].matrix
        return Model(self.config, matrix, tuple(layers), self.norm("output_norm"), head)


def runs_of_one_form(weights: Sequence[IntegerWeights]) -> list[list[int]]:
    """Numbers of neighbours that can be one matrix."""
    return [list(run) for _, run in groupby(range(len(weights)), key=lambda i: _form(weights[i]))]


def _form(weights: IntegerWeights) -> tuple[WeightFormat, bool, bytes]:
    return weights.format, weights.offsets is None, b"" if weights.table is None else weights.table.tobytes()


def join(weights: Sequence[IntegerWeights]) -> IntegerWeights:
    """Matrices of one form, one below the other."""
    first = weights[0]
    if len(weights) == 1:
        return first
    return replace(
        first,
        codes=_joined([one.codes for one in weights]),
        row_scales=_joined([one.row_scales for one in weights]),
        scales=None if first.scales is None else _joined([one.scales for one in weights]),
        offsets=None if first.offsets is None else _joined([one.offsets for one in weights]),
    )


def _joined(arrays: Sequence[Array | None]) -> Array:
    present = [array for array in arrays if array is not None]
    return present[0] if len(present) == 1 else np.concatenate(present)


def _joined_biases(biases: Sequence[F32 | None], lengths: Sequence[int]) -> F32 | None:
    if all(bias is None for bias in biases):
        return None
    zeros = [np.zeros(length, np.float32) for length in lengths]
    return _joined([zero if bias is None else bias for bias, zero in zip(biases, zeros, strict=True)])


def _by_expert(biases: Sequence[F32 | None]) -> tuple[F32, ...] | None:
    """Biases [experts, outputs] side by side, one array per expert."""
    present = [bias for bias in biases if bias is not None]
    if len(present) not in (0, len(biases)):
        raise ValueError("either all of an expert's fused matrices have a bias or none")
    return tuple(np.ascontiguousarray(np.concatenate(present, axis=1))) if present else None
