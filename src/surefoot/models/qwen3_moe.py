"""Qwen 3 with experts: Qwen 3's attention, and eight of many experts for each token."""

from dataclasses import replace

from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import build
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    router = Router(gguf.need("expert_used_count"), normalise=True)
    return _with_experts(gguf_config(checkpoint, "qwen3_moe"), router, gguf.get("expert_feed_forward_length"))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    if hf.get("mlp_only_layers") or (hf.get("decoder_sparse_step") or 1) != 1:
        raise ValueError("qwen3_moe models in which some layers have no experts are not supported")
    router = Router(need(hf, "num_experts_per_tok"), normalise=bool(need(hf, "norm_topk_prob")))
    return _with_experts(hf_config(hf, "qwen3_moe"), router, hf.get("moe_intermediate_size"))


def _with_experts(config: ModelConfig, router: Router, units: int | None) -> ModelConfig:
    """All layers have experts: files also name the units of a feed-forward that no layer has."""
    return replace(config, ffn=units or config.ffn, moe=MoeConfig(router))
