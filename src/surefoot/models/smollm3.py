"""SmolLM 3: Llama's layers, every fourth of which encodes no positions."""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.llama import build
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

__all__ = ["build", "from_gguf", "from_hf"]

INTERVAL = 4  # layers from one that encodes no positions to the next


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """The files do not say which layers encode no positions."""

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(kv, rope if (i + 1) % INTERVAL else None)

    return gguf_config(checkpoint, "smollm3", "neighbours", layer)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    config = hf_config({"use_sliding_window": False, **hf}, "smollm3")
    layers = zip(config.layers, rotating_layers(hf, INTERVAL), strict=True)
    return replace(config, layers=tuple(layer if rotated else replace(layer, rope=None) for layer, rotated in layers))


def rotating_layers(hf: Json, interval: int) -> list[bool]:
    """Whether each layer encodes positions: as the file lists them, or all but each `interval`-th."""
    count, interval = need(hf, "num_hidden_layers"), hf.get("no_rope_layer_interval") or interval
    listed = hf.get("no_rope_layers") or [(i + 1) % interval for i in range(count)]
    if len(listed) != count:
        raise MetadataError(f"config.json has {len(listed)} no_rope_layers for {count} layers: fetch it again")
    return [bool(flag) for flag in listed]
