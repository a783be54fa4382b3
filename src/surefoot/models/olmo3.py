"""OLMo 3: OLMo 2's layers, three of four with a window; RoPE is scaled only in the others."""

from dataclasses import replace

from surefoot.models.config import ModelConfig
from surefoot.models.hf_config import hf_config
from surefoot.models.olmo2 import build, from_gguf
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

PATTERN = 4  # every fourth layer is global


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    if not hf.get("layer_types"):
        count = need(hf, "num_hidden_layers")
        hf["layer_types"] = ["sliding_attention" if (i + 1) % PATTERN else "full_attention" for i in range(count)]
    config = hf_config(hf, "olmo3")
    layers = (
        replace(layer, rope=replace(layer.rope, scaling=None)) if config.kv(i).window and layer.rope else layer
        for i, layer in enumerate(config.layers)
    )
    return replace(config, layers=tuple(layers))
