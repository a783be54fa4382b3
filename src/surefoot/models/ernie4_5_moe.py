"""ERNIE 4.5 with experts: ERNIE 4.5's attention; experts are chosen by softmax and a bias, beside shared ones."""

from dataclasses import replace

from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import build
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

FAMILY = "ernie4_5_moe"


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    moe = MoeConfig(
        Router(gguf.need("expert_used_count"), normalise=True),
        gguf.get("leading_dense_block_count", 0),
        shared=gguf.get("expert_shared_count", 0) > 0,
    )
    return replace(gguf_config(checkpoint, FAMILY, "neighbours"), moe=moe)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    config, last = hf_config(hf, FAMILY, "neighbours"), hf.get("moe_layer_end_index", -1)
    if (hf.get("moe_layer_interval") or 1) != 1 or last not in (-1, len(config.layers) - 1):
        raise ValueError("ERNIE 4.5 in which later layers have no experts is not supported")
    router = Router(hf.get("moe_k") or need(hf, "num_experts_per_tok"), normalise=True)
    shared = hf.get("moe_num_shared_experts", 0) > 0
    return replace(config, moe=MoeConfig(router, hf.get("moe_layer_start_index") or 0, shared=shared))
