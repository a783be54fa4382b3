"""Phi 3 and 4: Llama's layers, with queries, keys and values in one tensor of the file, and gate and up in another.

Long-context files have two sets of RoPE frequencies. The short one is used, so the context is limited to its length.
"""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import build
from surefoot.ops import FactorScaling, RopeForm
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    window, short = gguf.get("attention.sliding_window", 0), "rope_factors_short.weight"
    factors = None
    if short in checkpoint.tensors:
        listed = tuple(map(float, checkpoint.floats(short)))
        factors = FactorScaling(listed, gguf.get("rope.scaling.attn_factor", 1.0))

    def layer(_: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(replace(kv, window=window), replace(rope, scaling=factors or rope.scaling))

    config = gguf_config(checkpoint, "phi3", layer=layer)
    return replace(config, context=gguf.get("rope.scaling.original_context_length", config.context))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    config = hf_config(checkpoint.metadata, "phi3")
    rope = checkpoint.metadata.get("rope_parameters") or checkpoint.metadata.get("rope_scaling") or {}
    original = checkpoint.metadata.get("original_max_position_embeddings") or config.context
    return replace(config, context=original if rope.get("short_factor") else config.context)
