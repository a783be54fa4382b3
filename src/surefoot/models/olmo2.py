"""OLMo 2: norms after attention and after feed-forward, none before; queries and keys normed over all heads."""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.gemma2 import build
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]


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
