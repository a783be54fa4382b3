"""Gemma 2: alternating window and global layers, norms before and after each half of a layer, soft-capped logits."""

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
class GemmaLayer:
    """A layer whose attention and feed-forward have a norm before and after them."""

    attention_norm: Norm  # before attention
    attention: Attention  # with grouped queries
    after_attention_norm: Norm  # of attention's output
    ffn_norm: Norm  # before feed-forward
    ffn: FeedForward  # gated
    after_ffn_norm: Norm  # of the feed-forward's output

    def __call__(self, step: Step) -> None:
        x = step.norm(self.attention_norm, self.attention.qkv)
        delta = step.project(self.attention.out, self.attention(step, x), "delta")
        add_normed(step, self.after_attention_norm, delta)
        x = step.norm(self.ffn_norm, self.ffn.gate_up)
        delta = step.project(self.ffn.down, self.ffn(step, x), "delta")
        add_normed(step, self.after_ffn_norm, delta)


def add_normed(step: Step, after: Norm, delta: F32) -> None:
    """Norms delta in place and adds it to the stream."""
    norm(step.backend, after.form, delta, after.weight, y=delta)
    step.add(delta)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """GGUF files hold norm weights to which 1 has already been added."""
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
    """Gemma's forms. `num_largest` is the number of layers of the 27B model, which scales attention by the inverse root
    of width / heads; the other sizes scale by that of a head's lanes."""
    largest = len(config.layers) == num_largest
    return replace(
        config,
        glu=GluForm("gelu_tanh"),
        scale=inverse_root(config.width / config.heads) if largest else config.scale,
        embedding_scale=math.sqrt(config.width),
    )


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    if not hf.get("layer_types"):
        kinds = ("sliding_attention", "full_attention")
        hf["layer_types"] = [kinds[i % 2] for i in range(need(hf, "num_hidden_layers"))]
    return gemma_from_hf(hf, "gemma2")


def gemma_from_hf(hf: Json, family: str) -> ModelConfig:
    config = hf_config(hf, family)
    return replace(
        config,
        norm=replace(config.norm, weight_offset=1.0),
        scale=inverse_root(need(hf, "query_pre_attn_scalar")),
        embedding_scale=math.sqrt(config.width),
        attention_softcap=hf.get("attn_logit_softcapping") or 0.0,
        logit_softcap=hf.get("final_logit_softcapping") or 0.0,
    )


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> GemmaLayer:
    return GemmaLayer(
        load.norm(f"blk.{i}.attn_norm"),
        load.attention(i),
        load.norm(f"blk.{i}.post_attention_norm"),
        load.norm(f"blk.{i}.ffn_norm"),
        load.feed_forward(i),
        load.norm(f"blk.{i}.post_ffw_norm"),
    )
