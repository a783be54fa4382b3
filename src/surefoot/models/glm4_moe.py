"""GLM 4.5 to 4.7: half of a head's lanes rotate; experts are chosen by sigmoids with a bias, beside shared ones.

MiniMax M2 and ERNIE 4.5 with experts are the same layers with other norms, rotations or scores.
"""

from dataclasses import replace

from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.llama import build
from surefoot.ops import Router, Scoring
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

ROTATED = 0.5  # of a head's lanes
SIGMOID = 2  # llama.cpp's number


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf, config = Gguf(checkpoint), gguf_config(checkpoint, "glm4_moe")
    moe = MoeConfig(gguf_router(gguf), gguf.get("leading_dense_block_count", 0), shared=True)
    return replace(without_last(config, gguf.get("nextn_predict_layers", 0)), moe=moe)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = {"partial_rotary_factor": ROTATED, **checkpoint.metadata}
    config = hf_config(hf, "glm4_moe")
    moe = MoeConfig(hf_router(hf), hf.get("first_k_dense_replace") or 0, shared=True)
    return replace(config, moe=moe, num_unused=num_drafting(checkpoint, config))


# ---- what DeepSeek's router and files have too ----


def gguf_router(gguf: Gguf, normalise: bool = True) -> Router:
    """By sigmoids or by the softmax of all. Files that do not say which have sigmoids if experts have a bias."""
    if gguf.get("expert_group_count", 1) > 1:
        raise ValueError("experts chosen by groups are not supported")
    has_bias = any(name.endswith("exp_probs_b.bias") for name in gguf.checkpoint.tensors)
    is_sigmoid = gguf.get("expert_gating_func", SIGMOID if has_bias else 0) == SIGMOID
    scale = gguf.get("expert_weights_scale", 1.0) or 1.0
    return Router(
        gguf.need("expert_used_count"),
        Scoring.SIGMOID if is_sigmoid else Scoring.SOFTMAX_ALL,
        bool(gguf.get("expert_weights_norm", normalise)),
        scale,
    )


def hf_router(hf: Json) -> Router:
    if (hf.get("n_group") or 1) > 1:
        raise ValueError("experts chosen by groups (n_group) are not supported")
    return Router(
        need(hf, "num_experts_per_tok"),
        Scoring.SIGMOID,
        bool(hf.get("norm_topk_prob", True)),
        hf.get("routed_scaling_factor") or 1.0,
    )


def without_last(config: ModelConfig, count: int) -> ModelConfig:
    """The last layers in the file only draft."""
    return replace(config, layers=config.layers[: len(config.layers) - count], num_unused=count)


def num_drafting(checkpoint: Checkpoint, config: ModelConfig) -> int:
    """Layers that a folder has after the model's own: they draft."""
    most = checkpoint.metadata.get("num_nextn_predict_layers") or 0
    numbers = {int(name.split(".")[1]) for name in checkpoint.tensors if name.startswith("blk.")}
    return min(most, sum(number >= len(config.layers) for number in numbers))
