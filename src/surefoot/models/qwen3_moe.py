"""Qwen 3 with experts: Qwen 3's attention, and eight of many experts for each token."""

from dataclasses import dataclass, replace

from surefoot.models.attention import Attention
from surefoot.models.config import ModelConfig, MoeConfig
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import Experts
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import Router
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need


@dataclass(frozen=True)
class MoeLayer:
    """A layer of norm, attention, norm, experts."""

    attention_norm: Norm  # before attention
    attention: Attention  # with grouped queries
    ffn_norm: Norm  # before the experts
    experts: Experts  # with their router

    def __call__(self, step: Step) -> None:
        x = step.norm(self.attention_norm, self.attention.qkv)
        step.add_projected(self.attention.out, self.attention(step, x))
        self.experts.add_to_stream(step, step.norm(self.ffn_norm, self.experts.gate))


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    router = Router(gguf.need("expert_used_count"), normalise=True)
    return _with_experts(gguf_config(checkpoint, "qwen3_moe"), router, gguf.get("expert_feed_forward_length"))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = checkpoint.metadata
    if hf.get("mlp_only_layers") or (hf.get("decoder_sparse_step") or 1) != 1:
        raise ValueError("qwen3_moe models in which some layers have no experts are not supported")
    router = Router(need(hf, "num_experts_per_tok"), normalise=bool(need(hf, "norm_topk_prob")))
    return _with_experts(hf_config(hf, "qwen3_moe"), router, hf.get("moe_intermediate_size"))


def _with_experts(config: ModelConfig, router: Router, units: int | None) -> ModelConfig:
    """All layers have experts: files also name the units of a feed-forward that no layer has."""
    return replace(config, ffn=units or config.ffn, moe=MoeConfig(router))


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> MoeLayer:
    return MoeLayer(load.norm(f"blk.{i}.attn_norm"), load.attention(i), load.norm(f"blk.{i}.ffn_norm"), load.mixture(i))
