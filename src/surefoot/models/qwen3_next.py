"""Qwen 3-Next: Qwen 3.5's layers with experts, from files that have a key head's parts of a matrix side by side."""

from dataclasses import replace

from surefoot.models import qwen3_5
from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf
from surefoot.models.qwen3_5 import build
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    config = qwen3_5.from_gguf(checkpoint, "qwen3_next", tiled=False)
    return _with_experts(config, Gguf(checkpoint).need("expert_used_count"), True)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    if hf.get("decoder_sparse_step", 1) != 1 or hf.get("mlp_only_layers"):
        raise MetadataError("layers without experts (decoder_sparse_step, mlp_only_layers) are not supported")
    config = qwen3_5.from_hf(checkpoint, "qwen3_next")
    return _with_experts(config, need(hf, "num_experts_per_tok"), hf.get("norm_topk_prob", True))


def _with_experts(config: ModelConfig, top_k: int, normalise: bool) -> ModelConfig:
    return replace(config, moe=MoeConfig(Router(top_k, normalise=normalise), shared=True))
