"""OLMo 2: norms after attention and after feed-forward, none before; queries and keys normed over all heads."""

from dataclasses import dataclass, replace

from surefoot.models.attention import Attention
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.gemma2 import add_normed
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class PostNormLayer:
    """A layer of attention, norm, feed-forward, norm."""

    attention: Attention  # reads the stream itself
    after_attention_norm: Norm  # of attention's output
    ffn: FeedForward  # reads the stream itself
    after_ffn_norm: Norm  # of the feed-forward's output

    def __call__(self, step: Step) -> None:
        x = step.stream(self.attention.qkv)
        delta = step.project(self.attention.out, self.attention(step, x), "delta")
        add_normed(step, self.after_attention_norm, delta)
        x = step.stream(self.ffn.gate_up)
        delta = step.project(self.ffn.down, self.ffn(step, x), "delta")
        add_normed(step, self.after_ffn_norm, delta)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """GGUF calls OLMo 3 by the same name: its window layers rotate without scaling."""
    gguf = Gguf(checkpoint)
    window = gguf.get("attention.sliding_window", 0)
    if not window:
        return gguf_config(checkpoint, "olmo2")
    slides = gguf.slides(every=4)

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        if not slides[i]:
            return LayerConfig(kv, rope)
        return LayerConfig(replace(kv, window=window), replace(rope, scaling=None))

    return gguf_config(checkpoint, "olmo3", layer=layer)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return hf_config(checkpoint.metadata, "olmo2")


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> PostNormLayer:
    return PostNormLayer(
        load.attention(i),
        load.norm(f"blk.{i}.post_attention_norm"),
        load.feed_forward(i),
        load.norm(f"blk.{i}.post_ffw_norm"),
    )
