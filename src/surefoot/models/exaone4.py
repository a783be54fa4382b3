"""EXAONE 4: OLMo 2's layers, with queries and keys normed per head.

Where some layers have a window, the others encode no positions.
"""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.olmo2 import build
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

PATTERN = 4  # every fourth layer is global


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    window = gguf.get("attention.sliding_window", 0)
    if not window:
        return gguf_config(checkpoint, "exaone4")
    slides = gguf.slides(every=PATTERN)

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(replace(kv, window=window), rope) if slides[i] else LayerConfig(kv, None)

    return gguf_config(checkpoint, "exaone4", layer=layer)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    if not hf.get("layer_types"):
        hf["layer_types"] = _kinds(hf.get("sliding_window_pattern"), need(hf, "num_hidden_layers"))
    config = hf_config(hf, "exaone4")
    if not hf.get("sliding_window"):
        return config
    layers = (layer if config.kv(i).window else replace(layer, rope=None) for i, layer in enumerate(config.layers))
    return replace(config, layers=tuple(layers))


def _kinds(pattern: int | str | None, count: int) -> list[str]:
    """The layers' kinds from a pattern: LLLG, or the number of layers from one global layer to the next."""
    if isinstance(pattern, int) and pattern:
        pattern = "L" * (pattern - 1) + "G"
    letters = pattern or "G"
    return ["full_attention" if letters[i % len(letters)] == "G" else "sliding_attention" for i in range(count)]
