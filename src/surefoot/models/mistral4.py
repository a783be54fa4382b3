"""Mistral Small 4: DeepSeek V2's layers with queries that grow with their position, also in lanes that do not rotate.

A group of experts is scored by its two best.
"""

from dataclasses import replace

from surefoot.models import deepseek_v2
from surefoot.models.config import ModelConfig, QueryGrowth
from surefoot.models.deepseek_v2 import build
from surefoot.models.gguf_config import Gguf
from surefoot.models.hf_config import hf_growth
from surefoot.models.routers import hf_groups
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

FAMILY = "mistral4"
GROWTH = 0.1  # which llama.cpp's converter leaves out


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf, config = Gguf(checkpoint), deepseek_v2.from_gguf(checkpoint, FAMILY, best_of_group=2)
    growth = QueryGrowth(GROWTH, gguf.need("rope.scaling.original_context_length"))
    return replace(config, query_growth=config.query_growth or growth)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    """The file's share of lanes that rotate is of a whole head."""
    hf = checkpoint.metadata
    rope = {key: value for key, value in need(hf, "rope_parameters").items() if key != "partial_rotary_factor"}
    router = Router(
        need(hf, "num_experts_per_tok"),
        normalise=bool(hf.get("norm_topk_prob", True)),
        scale=hf.get("routed_scaling_factor") or 1.0,
        groups=hf_groups(hf, best=2),
    )
    config = deepseek_v2.latent_config({**hf, "rope_parameters": rope}, FAMILY, router)
    return replace(config, query_growth=hf_growth(hf))
