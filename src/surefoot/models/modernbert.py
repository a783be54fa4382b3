"""ModernBERT: an encoder with norms before each half of a layer. Most layers see 64 tokens on either side.

The embeddings are normed, and the first layer's attention reads them as they are.
"""

from dataclasses import dataclass, replace

from surefoot.models.attention import Attention
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, half_window
from surefoot.models.decoder import Layer, Model
from surefoot.models.feed_forward import FeedForward, feed_forward
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import GluForm, NormForm, RopeForm
from surefoot.weights.checkpoint import Checkpoint

EVERY = 3  # the first of every three layers sees all tokens
THETA, LOCAL_THETA = 160000.0, 10000.0
LOCAL = 128  # tokens on both sides together


@dataclass(frozen=True)
class EmbeddingLayer:
    """The layer that norms the embeddings."""

    embedding_norm: Norm  # which replaces the stream
    attention: Attention
    ffn_norm: Norm
    ffn: FeedForward

    def __call__(self, step: Step) -> None:
        x = step.renorm(self.embedding_norm, self.attention.qkv)
        step.add_projected(self.attention.out, self.attention(step, x))
        feed_forward(step, self.ffn_norm, self.ffn)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    window = half_window(gguf.get("attention.sliding_window", LOCAL))
    theta = gguf.get("rope.freq_base_swa", LOCAL_THETA)

    def layer(number: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        if number % EVERY == 0:
            return LayerConfig(kv, rope)
        return LayerConfig(replace(kv, window=window), replace(rope, theta=theta))

    return _encoder(gguf_config(checkpoint, "modernbert", layer=layer), GluForm("gelu"))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    numbers, every = range(hf.get("num_hidden_layers", 0)), hf.get("global_attn_every_n_layers") or EVERY
    hf.setdefault("layer_types", ["sliding_attention" if i % every else "full_attention" for i in numbers])
    hf["sliding_window"] = half_window(hf.get("local_attention") or LOCAL)
    if not hf.get("rope_parameters"):
        local = {"rope_theta": hf.get("local_rope_theta") or LOCAL_THETA}
        hf["rope_parameters"] = {
            "full_attention": {"rope_theta": hf.get("global_rope_theta") or THETA}, "sliding_attention": local,
        }  # fmt: skip
    config = hf_config(hf | {"rms_norm_eps": hf.get("norm_eps", 1e-5)}, "modernbert")
    return _encoder(config, config.glu)


def _encoder(config: ModelConfig, glu: GluForm) -> ModelConfig:
    return replace(config, norm=NormForm("layer", config.norm.eps), glu=glu, sees_ahead=True)


def build(load: Loader) -> Model:
    return load.model(lambda number: load.layer(number) if number else _first(load))


def _first(load: Loader) -> Layer:
    norm, ffn_norm = load.norm("token_embd_norm"), load.norm("blk.0.ffn_norm")
    return EmbeddingLayer(norm, load.attention(0), ffn_norm, load.feed_forward(0))
