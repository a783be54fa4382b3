"""gpt-oss: alternating window and global layers with a sink per head, experts in MXFP4 with clamped gates, biases."""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, MoeConfig
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.llama import build
from surefoot.ops import GluForm, RopeForm, Router, Scoring, YarnScaling
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

__all__ = ["build", "from_gguf", "from_hf"]

GLU = GluForm("clamped", limit=7.0, alpha=1.702)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    window = gguf.need("attention.sliding_window")

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        # The files do not say so, but the model was trained with a YaRN ramp that is not rounded to whole lanes.
        scaling = replace(rope.scaling, truncate=False) if isinstance(rope.scaling, YarnScaling) else rope.scaling
        return LayerConfig(replace(kv, window=0 if i % 2 else window), replace(rope, scaling=scaling))

    config = gguf_config(checkpoint, "gpt_oss", layer=layer)
    return replace(config, glu=GLU, moe=MoeConfig(_router(gguf.need("expert_used_count"))))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    config = hf_config(hf, "gpt_oss")
    limit, alpha = hf.get("swiglu_limit") or GLU.limit, hf.get("swiglu_alpha") or GLU.alpha
    router = _router(need(hf, "num_experts_per_tok"))
    return replace(config, glu=GluForm("clamped", limit, alpha), moe=MoeConfig(router))


def _router(top_k: int) -> Router:
    return Router(top_k, Scoring.SOFTMAX_CHOSEN)
