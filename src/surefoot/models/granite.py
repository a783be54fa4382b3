"""Granite 3: Llama's layers, with multipliers of embeddings, attention logits, what layers add, and logits.

The multiplier of what layers add is not computed. A stream divided by it has layers that add without a multiplier, and
norms do not see the stream's scale if their epsilon is divided by the multiplier's square.
"""

from dataclasses import replace

from surefoot.models.config import ModelConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.llama import build
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return with_gguf_multipliers(gguf_config(checkpoint, "granite", "neighbours"), Gguf(checkpoint))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    return with_hf_multipliers(hf_config(checkpoint.metadata, "granite"), checkpoint.metadata)


def with_gguf_multipliers(config: ModelConfig, gguf: Gguf) -> ModelConfig:
    config = replace(
        config,
        embedding_scale=gguf.get("embedding_scale", 1.0),
        scale=gguf.get("attention.scale", config.scale),
        logit_scale=1 / gguf.get("logit_scale", 1.0),
    )
    return _without_multiplier(config, gguf.get("residual_scale", 1.0))


def with_hf_multipliers(config: ModelConfig, hf: Json) -> ModelConfig:
    config = replace(
        config,
        embedding_scale=need(hf, "embedding_multiplier"),
        scale=need(hf, "attention_multiplier"),
        logit_scale=1 / need(hf, "logits_scaling"),
    )
    return _without_multiplier(config, need(hf, "residual_multiplier"))


def _without_multiplier(config: ModelConfig, multiplier: float) -> ModelConfig:
    """The same model with a stream divided by the multiplier of what layers add to it."""
    return replace(
        config,
        embedding_scale=config.embedding_scale / multiplier,
        norm=replace(config.norm, eps=config.norm.eps / (multiplier * multiplier)),
    )
