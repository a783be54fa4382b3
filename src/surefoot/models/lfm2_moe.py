"""LFM 2 with experts: LFM 2's layers, all but the first with experts in the place of feed-forward."""

from dataclasses import replace

from surefoot.models import lfm2
from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf
from surefoot.models.lfm2 import build
from surefoot.models.routers import hf_router
from surefoot.ops import Router, Scoring
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """llama.cpp writes neither that weights are normalised nor their scale: they are, and it is one."""
    gguf = Gguf(checkpoint)
    router = Router(gguf.need("expert_used_count"), Scoring.SIGMOID, normalise=True)
    return replace(
        lfm2.from_gguf(checkpoint, "lfm2_moe"), moe=MoeConfig(router, gguf.get("leading_dense_block_count", 0))
    )


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    moe = MoeConfig(hf_router(hf), hf.get("num_dense_layers") or 0)
    return replace(lfm2.from_hf(checkpoint, "lfm2_moe"), moe=moe)
