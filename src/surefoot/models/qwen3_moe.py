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
class Layer:
    attention_norm: Norm
    attention: Attention
    ffn_norm: Norm
    experts: Experts

    def __call__(self, step: Step) -> None:
        x = step.norm(self.attention_norm, self.attention.qkv)
        step.add_projected(self.attention.out, self.attention(step, x))
        self.experts.add_to_stream(step, step.norm(self.ffn_norm, self.experts.gate))


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    router = Router(Gguf(checkpoint).need("expert_used_count"), normalise=True)
    return replace(gguf_config(checkpoint, "qwen3_moe"), moe=MoeConfig(router))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    given = checkpoint.metadata
    if given.get("mlp_only_layers") or (given.get("decoder_sparse_step") or 1) != 1:
        raise ValueError("qwen3_moe with layers that have no experts is not supported")
    router = Router(need(given, "num_experts_per_tok"), normalise=bool(need(given, "norm_topk_prob")))
    return replace(hf_config(given, "qwen3_moe"), moe=MoeConfig(router))


def build(load: Loader) -> Model:
    return load.model([_layer(load, i) for i in range(len(load.config.layers))])


def _layer(load: Loader, i: int) -> Layer:
    return Layer(load.norm(f"blk.{i}.attn_norm"), load.attention(i), load.norm(f"blk.{i}.ffn_norm"), load.mixture(i))
