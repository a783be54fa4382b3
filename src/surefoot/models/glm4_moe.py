"""GLM 4.5 to 4.7: half of a head's lanes rotate; experts are chosen by sigmoids with a bias, beside shared ones.

MiniMax M2 and ERNIE 4.5 with experts are the same layers with other norms, rotations or scores.
"""

from dataclasses import replace

from surefoot.models.config import ModelConfig, MoeConfig, without_last
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config, num_drafting
from surefoot.models.llama import build
from surefoot.models.routers import gguf_router, hf_router
from surefoot.weights.checkpoint import Checkpoint

__all__ = ["build", "from_gguf", "from_hf"]

ROTATED = 0.5  # of a head's lanes


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf, config = Gguf(checkpoint), gguf_config(checkpoint, "glm4_moe")
    moe = MoeConfig(gguf_router(gguf), gguf.get("leading_dense_block_count", 0), shared=True)
    return replace(without_last(config, gguf.get("nextn_predict_layers", 0)), moe=moe)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = {"partial_rotary_factor": ROTATED, **checkpoint.metadata}
    config = hf_config(hf, "glm4_moe")
    moe = MoeConfig(hf_router(hf), hf.get("first_k_dense_replace") or 0, shared=True)
    return replace(config, moe=moe, num_unused=num_drafting(checkpoint, config))
