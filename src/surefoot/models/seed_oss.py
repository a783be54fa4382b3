"""Seed-OSS: Llama's layers, with biases on queries, keys and values."""

from surefoot.models.config import ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import LlamaLayer
from surefoot.models.load import Loader
from surefoot.weights.checkpoint import Checkpoint


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return gguf_config(checkpoint, "seed_oss")


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return hf_config(checkpoint.metadata, "seed_oss")


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> LlamaLayer:
    """The files call the norm before feed-forward post_attention_norm."""
    return LlamaLayer(
        load.norm(f"blk.{i}.attn_norm"),
        load.attention(i),
        load.norm(f"blk.{i}.post_attention_norm"),
        load.feed_forward(i),
    )
