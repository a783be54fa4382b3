"""Routers of mixtures whose experts are chosen by sigmoids, most often with a bias, or by groups."""

from surefoot.models.gguf_config import Gguf
from surefoot.models.hf_config import Json
from surefoot.ops import Groups, Router, Scoring
from surefoot.weights.metadata import need

SIGMOID = 2  # llama.cpp's number


def gguf_router(gguf: Gguf, normalise: bool = True, best_of_group: int | None = None) -> Router:
    """By sigmoids or by the softmax of all. Files that do not say which have sigmoids if experts have a bias."""
    has_bias = any(name.endswith("exp_probs_b.bias") for name in gguf.checkpoint.tensors)
    is_sigmoid = gguf.get("expert_gating_func", SIGMOID if has_bias else 0) == SIGMOID
    scale = gguf.get("expert_weights_scale", 1.0) or 1.0
    return Router(
        gguf.need("expert_used_count"),
        Scoring.SIGMOID if is_sigmoid else Scoring.SOFTMAX_ALL,
        bool(gguf.get("expert_weights_norm", normalise)),
        scale,
        _gguf_groups(gguf, best_of_group or (2 if is_sigmoid else 1)),
    )


def _gguf_groups(gguf: Gguf, best: int) -> Groups:
    """Files do not say how groups are scored. llama.cpp always takes a group's two best experts, as DeepSeek V3 does.
    This follows transformers, where DeepSeek V2, whose scores are softmaxes, takes the best alone."""
    count = gguf.get("expert_group_count") or 1
    return Groups(count, gguf.need("expert_group_used_count"), best) if count > 1 else Groups()


def hf_router(hf: Json) -> Router:
    return Router(
        need(hf, "num_experts_per_tok"),
        Scoring.SIGMOID,
        bool(hf.get("norm_topk_prob", True)),
        hf.get("routed_scaling_factor") or 1.0,
        hf_groups(hf, best=2),
    )


def hf_groups(hf: Json, best: int) -> Groups:
    """Groups that are scored by the sum of their `best` experts.

    transformers gives experts of the groups left out a score of -infinity, or of 0 where scores are softmaxes. They are
    never chosen here: k experts fit into the groups kept (models/shapes.py), and one tied at 0 would have no weight."""
    count = hf.get("n_group") or 1
    return Groups(count, need(hf, "topk_group"), best) if count > 1 else Groups()
