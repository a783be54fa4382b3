"""Kimi Linear: three layers of the delta rule to one of latent attention that encodes no positions.

States of the delta rule forget each lane of the keys at a rate of its own. Experts are those of DeepSeek V3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.models import deepseek_v2
from surefoot.models.config import DeltaConfig, ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.deepseek_v2 import latent_attention
from surefoot.models.delta import DeltaRule, delta_layer, gated_heads, load_delta_rule
from surefoot.models.gguf_config import Gguf
from surefoot.models.hf_config import Json
from surefoot.models.layers import Mixer
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.routers import hf_router
from surefoot.models.step import Step
from surefoot.models.workspace import Features
from surefoot.ops import GluForm
from surefoot.ops.arrays import F32
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

FAMILY = "kimi_linear"
NAMES = {  # of this family's files, and the usual ones
    "model_max_length": "max_position_embeddings",
    "moe_renormalize": "norm_topk_prob",
    "num_expert_group": "n_group",
    "num_experts_per_token": "num_experts_per_tok",
}


@dataclass(frozen=True)
class KimiDelta:
    """A layer of the delta rule. Rates of forgetting, and gates of the outputs, come from narrow vectors."""

    inner: Linear  # outputs: queries, keys and values together, the vector of the rates, that of the gates, betas
    rates: Linear  # from their vector, one output for each lane of the heads' keys
    gates: Linear  # from their vector, one output for each lane of the heads' outputs
    rule: DeltaRule  # makes the heads' outputs
    out: Linear  # back to the stream

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.inner,)

    def __call__(self, step: Step, x: Features) -> Features:
        """The heads' gated outputs, in the form that `out` takes."""
        sizes, parts = self.rule.sizes, step.project(self.inner, x, "delta parts")
        narrow = (parts.shape[1] - sizes.conv_width - sizes.heads) // 2
        mixed, rates, gates, beta = np.split(parts, np.cumsum([sizes.conv_width, narrow, narrow]), axis=1)
        heads = self.rule(step, mixed, _widened(step, self.rates, rates, "rates"), beta)
        return gated_heads(step, GluForm("sigmoid"), _widened(step, self.gates, gates, "gates"), heads, self.out)


def _widened(step: Step, matrix: Linear, narrow: F32, name: str) -> F32:
    return step.project(matrix, step.features(f"narrow {name}", narrow, matrix), name)


# ---- configuration ----


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf, config = Gguf(checkpoint), deepseek_v2.from_gguf(checkpoint, FAMILY, normalise=True)
    lanes = gguf.need("kda.head_dim")
    return _kimi(config, config.heads, lanes, gguf.need("ssm.conv_kernel"), [count == 0 for count in gguf.kv_heads()])


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    given = checkpoint.metadata
    hf = {**given, **{usual: given[own] for own, usual in NAMES.items() if given.get(own) is not None}}
    own = hf.get("linear_attn_config") or {}
    if hf.get("moe_layer_freq", 1) != 1:
        raise ValueError("kimi_linear models in which later layers have no experts are not supported")
    config = deepseek_v2.latent_config(hf, FAMILY, hf_router(hf))
    return _kimi(
        config,
        own.get("num_heads") or need(hf, "linear_num_heads"),
        own.get("head_dim") or need(hf, "linear_head_dim"),
        own.get("short_conv_kernel_size") or need(hf, "linear_conv_kernel_dim"),
        _recurrent(hf, own),
    )


def _recurrent(hf: Json, own: Mapping[str, Any]) -> list[bool]:
    """Whether each layer is one of the delta rule. Files list the numbers of those with attention, from 1 on."""
    count = need(hf, "num_hidden_layers")
    if (listed := own.get("full_attn_layers")) is not None:
        return [i + 1 not in listed for i in range(count)]
    return [kind == "linear_attention" for kind in need(hf, "layer_types")]


def _kimi(config: ModelConfig, heads: int, lanes: int, taps: int, recurrent: Sequence[bool]) -> ModelConfig:
    if lanes % 16:
        raise MetadataError(
            f"the metadata say heads of {lanes} lanes in the delta rule, where a multiple of 16 is allowed"
        )
    delta = DeltaConfig(heads, heads, lanes, lanes, taps, by_lane=True)
    layers = zip(config.layers, recurrent, strict=True)
    kept = tuple(delta_layer(delta) if is_delta else replace(layer, rope=None) for layer, is_delta in layers)
    return replace(config, layers=kept, delta=delta)


# ---- weights ----


def build(load: Loader) -> Model:
    return load.model(lambda i: load.layer(i, _mixer(load, i)))


def _mixer(load: Loader, i: int) -> Mixer:
    return _delta(load, i) if i in load.config.states else latent_attention(load, i)


def _delta(load: Loader, i: int) -> KimiDelta:
    name, separate = f"blk.{i}", [f"ssm_conv1d_{part}" for part in "qkv"]
    parts = ("attn_q", "attn_k", "attn_v", "ssm_f_a", "ssm_g_a", "ssm_beta")
    return KimiDelta(
        inner=load.linear(*(f"{name}.{part}" for part in parts)),
        rates=load.linear(f"{name}.ssm_f_b"),
        gates=load.linear(f"{name}.ssm_g_b"),
        rule=load_delta_rule(load, i, *(["ssm_conv1d"] if load.has(f"{name}.ssm_conv1d") else separate)),
        out=load.linear(f"{name}.attn_output"),
    )
