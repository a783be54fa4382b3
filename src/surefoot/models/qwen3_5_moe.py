"""Qwen 3.5 with experts (text): Qwen 3.5's layers with experts in the place of feed-forward, one of them shared and
gated."""

from dataclasses import replace

from surefoot.models import qwen3_5
from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf
from surefoot.models.qwen3_5 import build
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return _with_experts(qwen3_5.from_gguf(checkpoint, "qwen3_5_moe"), Gguf(checkpoint).need("expert_used_count"))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    top_k = need(checkpoint.metadata, "num_experts_per_tok")
    return _with_experts(qwen3_5.from_hf(checkpoint, "qwen3_5_moe"), top_k)


def _with_experts(config: ModelConfig, top_k: int) -> ModelConfig:
    return replace(config, moe=MoeConfig(Router(top_k, normalise=True), shared=True))
