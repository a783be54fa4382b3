"""MiniMax M2: the queries of all heads are normed together, and the keys; all layers have experts, chosen by sigmoids
with a bias."""

from dataclasses import replace

from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import build
from surefoot.models.routers import gguf_router, hf_router
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return replace(gguf_config(checkpoint, "minimax_m2"), moe=MoeConfig(gguf_router(Gguf(checkpoint))))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    if "rotary_dim" in hf and "head_dim" in hf:
        hf["partial_rotary_factor"] = hf["rotary_dim"] / hf["head_dim"]
    return replace(hf_config(hf, "minimax_m2"), moe=MoeConfig(hf_router(hf)))
