"""Hunyuan with experts: Hunyuan's layers; experts are chosen by softmax, beside a shared one."""

from dataclasses import replace

from surefoot.models import hunyuan_v1_dense
from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf
from surefoot.models.hf_config import of_all_layers
from surefoot.models.hunyuan_v1_dense import build
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]

FAMILY = "hunyuan_v1_moe"


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    top_k = Gguf(checkpoint).need("expert_used_count")
    return _with_experts(hunyuan_v1_dense.from_gguf(checkpoint, FAMILY), top_k)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    top_k = of_all_layers(checkpoint.metadata, "moe_topk")
    return _with_experts(hunyuan_v1_dense.from_hf(checkpoint, FAMILY), top_k)


def _with_experts(config: ModelConfig, top_k: int) -> ModelConfig:
    return replace(config, moe=MoeConfig(Router(top_k, normalise=True), shared=True))
