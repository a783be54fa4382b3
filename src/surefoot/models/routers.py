"""Routers of mixtures whose experts are chosen by sigmoids, most often with a bias."""

from surefoot.models.gguf_config import Gguf
from surefoot.models.hf_config import Json
from surefoot.ops import Router, Scoring
from surefoot.weights.metadata import need

SIGMOID = 2  # llama.cpp's number


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
