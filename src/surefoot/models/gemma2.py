"""Gemma 2: window and global layers by turns, norms before and after each half of a layer, capped logits."""

import math
from dataclasses import dataclass, replace

from surefoot.models.attention import Attention
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, inverse_root
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import GluForm, RopeForm, norm
from surefoot.ops.arrays import F32
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need


@dataclass(frozen=True)
class Layer:
    attention_norm: Norm
    attention: Attention
    after_attention_norm: Norm
    ffn_norm: Norm
    ffn: FeedForward
    after_ffn_norm: Norm

    def __call__(self, step: Step) -> None:
        x = step.norm(self.attention_norm, self.attention.qkv)
        delta = step.project(self.attention.out, self.attention(step, x), "delta")
        add_normed(step, self.after_attention_norm, delta)
        x = step.norm(self.ffn_norm, self.ffn.gate_up)
        delta = step.project(self.ffn.down, self.ffn(step, x), "delta")
        add_normed(step, self.after_ffn_norm, delta)


def add_normed(step: Step, after: Norm, delta: F32) -> None:
    """Add delta, normed by itself, to the stream."""
    norm(step.backend, after.form, delta, after.weight, y=delta)
    step.add(delta)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """GGUF's norms hold weights to which one has been added already."""
    gguf = Gguf(checkpoint)
    window = gguf.need("attention.sliding_window")

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(replace(kv, window=0 if i % 2 else window), rope)

    return replace(
        gemma_from_gguf(gguf_config(checkpoint, "gemma2", layer=layer), num_largest=46),
        attention_softcap=gguf.get("attn_logit_softcapping", 50.0),
        logit_softcap=gguf.get("final_logit_softcapping", 30.0),
    )


def gemma_from_gguf(config: ModelConfig, num_largest: int) -> ModelConfig:
    """num_largest: layers of the 27B model, which divides by the root of width / heads; the others by that of a head's
    lanes."""
    largest = len(config.layers) == num_largest
    return replace(
        config,
        glu=GluForm("gelu_tanh"),
        scale=inverse_root(config.width / config.heads) if largest else config.scale,
        embedding_scale=math.sqrt(config.width),
    )


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    given = dict(checkpoint.metadata)
    if not given.get("layer_types"):
        kinds = ("sliding_attention", "full_attention")
        given["layer_types"] = [kinds[i % 2] for i in range(need(given, "num_hidden_layers"))]
    return gemma_from_hf(given, "gemma2")


def gemma_from_hf(given: Json, family: str) -> ModelConfig:
    config = hf_config(given, family)
    return replace(
        config,
        norm=replace(config.norm, weight_offset=1.0),
        scale=inverse_root(need(given, "query_pre_attn_scalar")),
        embedding_scale=math.sqrt(config.width),
        attention_softcap=given.get("attn_logit_softcapping") or 0.0,
        logit_softcap=given.get("final_logit_softcapping") or 0.0,
    )


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> Layer:
    return Layer(
        load.norm(f"blk.{i}.attn_norm"),
        load.attention(i),
        load.norm(f"blk.{i}.post_attention_norm"),
        load.norm(f"blk.{i}.ffn_norm"),
        load.feed_forward(i),
        load.norm(f"blk.{i}.post_ffw_norm"),
    )
