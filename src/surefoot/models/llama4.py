"""Llama 4 (text): layers that rotate, with windows side by side, and layers that do not rotate and see all.

- Queries and keys that rotate are normed afterwards. Queries that do not rotate grow with their position.
- A token has one expert, chosen by sigmoids, beside a shared one. The router's weight multiplies what the expert reads.
- Every layer has experts, or every second one.
"""

from dataclasses import dataclass, replace

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, MoeConfig, QueryGrowth
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts, Feed, group
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.layers import PreNormLayer
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.smollm3 import rotating_layers
from surefoot.models.step import Norm, Step
from surefoot.models.workspace import Features
from surefoot.ops import RopeForm, Router, Scoring, combine, embed
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

INTERVAL = 4  # layers from one that does not rotate to the next
# What GGUF files do not say.
CHUNK = 8192  # tokens of a window
GROWTH = QueryGrowth(0.1, 8192, offset=1)
NOT_NORMED = 128  # Maverick has this many experts, and does not norm queries and keys


@dataclass(frozen=True)
class WeighedInputs:
    """Experts of which a token has one, whose input is multiplied by the router's weight."""

    experts: Experts  # with their router

    @property
    def reads(self) -> tuple[Linear, ...]:
        return self.experts.reads

    def add_to_stream(self, step: Step, x: Features) -> None:
        """`x` must hold floats, for the router."""
        assert x.floats is not None
        routes, backend = self.experts.route(step, x), step.backend
        rows = group(step, routes.ids, self.experts.num_experts)
        by_expert = embed(backend, rows.rows, x.floats, out=step.floats("by expert", *x.floats.shape))
        weighed = step.floats("weighed", *x.floats.shape)
        combine(backend, by_expert, rows.places, routes.weights, out=weighed)
        outputs = self.experts.outputs(step, weighed, rows)
        delta = step.floats("expert delta", *x.floats.shape)
        step.add(embed(backend, rows.places.reshape(-1), outputs, out=delta))


# ---- configuration ----


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """The files say neither which layers rotate nor how queries grow. llama.cpp takes what Scout and Maverick have."""
    gguf = Gguf(checkpoint)
    if gguf.get("attention.sliding_window") == 0:
        raise ValueError("GGUF files of llama4 whose layers all see everything are not supported")

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return _layer(LayerConfig(kv, rope), rotates=(i + 1) % INTERVAL > 0, chunk=CHUNK)

    config = gguf_config(checkpoint, "llama4", "neighbours", layer)
    moe = _moe(gguf.need("expert_used_count"), gguf.need("interleave_moe_layer_step"))
    return replace(config, moe=moe, query_growth=GROWTH, norms_rotated=gguf.need("expert_count") != NOT_NORMED)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    rotates = rotating_layers(hf, INTERVAL)
    kinds = ["chunked_attention" if rotated else "full_attention" for rotated in rotates]
    if hf.get("layer_types") not in (None, kinds):
        raise ValueError("llama4 models whose windows are not those of the layers that rotate are not supported")
    config = hf_config({**hf, "layer_types": kinds}, "llama4", "neighbours")
    pairs = zip(config.layers, rotates, strict=True)
    grows = hf.get("attn_temperature_tuning", True)
    return replace(
        config,
        ffn=need(hf, "intermediate_size_mlp"),
        layers=tuple(_layer(layer, rotated, need(hf, "attention_chunk_size")) for layer, rotated in pairs),
        moe=_moe(need(hf, "num_experts_per_tok"), _interval(hf)),
        query_growth=QueryGrowth(need(hf, "attn_scale"), need(hf, "floor_scale"), offset=1) if grows else None,
        norms_rotated=bool(need(hf, "use_qk_norm")),
    )


def _layer(layer: LayerConfig, rotates: bool, chunk: int) -> LayerConfig:
    assert isinstance(layer.kv, KvLayer)
    return replace(layer, kv=replace(layer.kv, window=chunk, fixed=True)) if rotates else replace(layer, rope=None)


def _moe(top_k: int, every: int) -> MoeConfig:
    if top_k != 1:
        raise ValueError(f"llama4 models with {top_k} experts for a token are not supported: one is")
    return MoeConfig(Router(top_k, Scoring.SIGMOID), every=every, shared=True)


def _interval(hf: Json) -> int:
    """Layers from one with experts to the next."""
    every: int = need(hf, "interleave_moe_layer_step")
    listed = hf.get("moe_layers")
    if listed is not None and list(listed) != list(range(every - 1, need(hf, "num_hidden_layers"), every)):
        raise MetadataError(f"moe_layers does not list every {every}. layer: such models are not supported")
    return every


# ---- weights ----


def build(load: Loader) -> Model:
    def layer(i: int) -> PreNormLayer:
        usual = load.layer(i, _attention(load, i))
        return replace(usual, feeds=tuple(map(_weighed, usual.feeds)))

    return load.model(layer)


def _weighed(feed: Feed) -> Feed:
    return WeighedInputs(feed) if isinstance(feed, Experts) else feed


def _attention(load: Loader, i: int) -> Attention:
    usual, config = load.attention(i), load.config
    if usual.rope is None:
        return replace(usual, query_rope=load.growth(usual.head_dim))
    unit = Norm(config.norm, np.ones(usual.head_dim, np.float32)) if config.norms_rotated else None
    return replace(usual, query_rope=None, query_norm=unit, key_norm=unit, norms_rotated=True)
