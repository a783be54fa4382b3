"""OLMo 3: OLMo 2's layers, three of four with a window; RoPE is scaled only in the others."""

from dataclasses import replace

from surefoot.models.config import ModelConfig
from surefoot.models.hf_config import hf_config, with_kinds
from surefoot.models.olmo2 import build, from_gguf
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]

PATTERN = 4  # every fourth layer is global


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    config = hf_config(with_kinds(checkpoint.metadata, every=PATTERN), "olmo3")
    layers = (
        replace(layer, rope=replace(layer.rope, scaling=None)) if config.kv(i).window and layer.rope else layer
        for i, layer in enumerate(config.layers)
    )
    return replace(config, layers=tuple(layers))
