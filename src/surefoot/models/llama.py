"""Llama 2 and 3, SmolLM, TinyLlama, Mistral: norm, attention, norm, gated feed-forward."""

from dataclasses import dataclass, replace

from surefoot.models.attention import Attention
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class LlamaLayer:
    """A layer of norm, attention, norm, feed-forward."""

    attention_norm: Norm  # before attention
    attention: Attention  # with grouped queries
    ffn_norm: Norm  # before feed-forward
    ffn: FeedForward  # gated

    def __call__(self, step: Step) -> None:
        x = step.norm(self.attention_norm, self.attention.qkv)
        step.add_projected(self.attention.out, self.attention(step, x))
        x = step.norm(self.ffn_norm, self.ffn.gate_up)
        step.add_projected(self.ffn.down, self.ffn(step, x))


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """GGUF's llama files order the rows of queries and keys differently from Hugging Face's: lanes that rotate together
    are adjacent."""
    window = Gguf(checkpoint).get("attention.sliding_window", 0)

    def layer(_: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(replace(kv, window=window), rope)

    return gguf_config(checkpoint, "llama", "neighbours", layer)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return hf_config(checkpoint.metadata, "llama")


def build(load: Loader) -> Model:
    return load.model([make_layer(load, i) for i in range(len(load.config.layers))])


def make_layer(load: Loader, i: int) -> LlamaLayer:
    return LlamaLayer(
        load.norm(f"blk.{i}.attn_norm"), load.attention(i), load.norm(f"blk.{i}.ffn_norm"), load.feed_forward(i)
    )
