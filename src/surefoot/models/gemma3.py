"""Gemma 3: Gemma 2's layers without soft caps, a global layer after every five window layers, queries and keys normed
per head.

Window layers have a RoPE base of their own. EmbeddingGemma is a Gemma 3 whose tokens see later ones too.
"""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, half_window
from surefoot.models.gemma2 import build, gemma_from_gguf, gemma_from_hf
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, with_kinds
from surefoot.ops import RopeForm
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

PATTERN = 6  # every sixth layer is global
LOCAL_THETA = 10000.0
EMBEDDING = "gemma-embedding"  # GGUF's name of EmbeddingGemma, whose tokens see later ones


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return gemma3_from_gguf(checkpoint, "gemma3")


def gemma3_from_gguf(checkpoint: Checkpoint, family: str) -> ModelConfig:
    """GGUF files hold norm weights to which 1 has already been added."""
    gguf = Gguf(checkpoint)
    sees_ahead = checkpoint.metadata["general.architecture"] == EMBEDDING
    window, theta = gguf.need("attention.sliding_window"), gguf.get("rope.freq_base_swa", LOCAL_THETA)
    window = half_window(window) if sees_ahead else window
    slides = gguf.slides(every=PATTERN)

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        if not slides[i]:
            return LayerConfig(kv, rope)
        return LayerConfig(replace(kv, window=window), replace(rope, theta=theta, scaling=None))

    config = gemma_from_gguf(gguf_config(checkpoint, family, layer=layer), num_largest=62)
    return replace(config, sees_ahead=sees_ahead)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return gemma3_from_hf(checkpoint.metadata, "gemma3")


def gemma3_from_hf(given: Json, family: str) -> ModelConfig:
    hf = with_kinds(given, every=given.get("sliding_window_pattern") or PATTERN)
    sees_ahead = bool(hf.get("use_bidirectional_attention"))
    if sees_ahead:
        hf["sliding_window"] = half_window(need(hf, "sliding_window"))
    if not hf.get("rope_parameters"):
        shared = {"rope_theta": hf.get("rope_theta") or 1e6, **(hf.get("rope_scaling") or {})}
        local = {"rope_theta": hf.get("rope_local_base_freq") or LOCAL_THETA}
        hf["rope_parameters"] = {"full_attention": shared, "sliding_attention": local}
    return replace(gemma_from_hf(hf, family), sees_ahead=sees_ahead)
