"""Gemma 2: alternating window and global layers, norms before and after each half of a layer, soft-capped logits."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from surefoot.models.attention import Attention
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, inverse_root
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config, with_kinds
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.models.workspace import Features
from surefoot.ops import GluForm, RopeForm, norm
from surefoot.ops.arrays import F32
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need


class Beside(Protocol):
    """What stands beside a feed-forward and reads the same stream."""

    def add_to(self, step: Step, dense: F32) -> None:
        """Adds to the feed-forward's output, in place."""


@dataclass(frozen=True)
class PostNormLayer:
    """A layer whose attention and feed-forward have a norm after them, and most often one before."""

    attention_norm: Norm | None  # before attention; None: it reads the stream itself
    attention: Attention  # with grouped queries
    after_attention_norm: Norm  # of attention's output
    ffn_norm: Norm | None  # before feed-forward; None: it reads the stream itself
    ffn: FeedForward  # gated
    after_ffn_norm: Norm  # of the feed-forward's output, and what stands beside it
    beside: Beside | None = None  # None: the feed-forward stands alone

    def __call__(self, step: Step) -> None:
        x = _read(step, self.attention_norm, self.attention.qkv)
        delta = step.project(self.attention.out, self.attention(step, x), "delta")
        add_normed(step, self.after_attention_norm, delta)
        x = _read(step, self.ffn_norm, self.ffn.gate_up)
        delta = step.project(self.ffn.down, self.ffn(step, x), "delta")
        if self.beside is not None:
            self.beside.add_to(step, delta)
        add_normed(step, self.after_ffn_norm, delta)


def _read(step: Step, before: Norm | None, reader: Linear) -> Features:
    return step.stream(reader) if before is None else step.norm(before, reader)


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
    return gemma_from_hf(with_kinds(checkpoint.metadata, every=2), "gemma2")


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
    return load.model(partial(post_norm_layer, load))


def post_norm_layer(load: Loader, i: int) -> PostNormLayer:
    return PostNormLayer(
        load.norm_if_any(f"blk.{i}.attn_norm"),
        load.attention(i),
        load.norm(f"blk.{i}.post_attention_norm"),
        load.norm_if_any(f"blk.{i}.ffn_norm"),
        load.feed_forward(i),
        load.norm(f"blk.{i}.post_ffw_norm"),
    )
