"""Ministral 3, and Mistral Small 3 in GGUF files: Llama's layers, with queries that grow with their position."""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, QueryGrowth
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config, hf_growth
from surefoot.models.llama import build
from surefoot.ops import RopeForm, YarnScaling
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """GGUF names one of the two factors of yarn's growth of magnitudes; the other is 1."""
    gguf = Gguf(checkpoint)
    factor, log_multiplier = gguf.get("attention.temperature_scale", 0.0), gguf.get("rope.scaling.yarn_log_multiplier")

    def layer(_: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        if not (log_multiplier and isinstance(rope.scaling, YarnScaling)):
            return LayerConfig(kv, rope)
        return LayerConfig(kv, replace(rope, scaling=replace(rope.scaling, mscale=1.0, mscale_all_dim=log_multiplier)))

    config = gguf_config(checkpoint, "ministral3", "neighbours", layer)
    if not factor:
        return config
    return replace(config, query_growth=QueryGrowth(factor, gguf.need("rope.scaling.original_context_length")))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    return replace(hf_config(hf, "ministral3"), query_growth=hf_growth(hf))
