"""Qwen 3.5 (text): three layers of the gated delta rule to one of gated attention, each followed by feed-forward."""

from dataclasses import dataclass, replace

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import (
    DeltaConfig,
    KvLayer,
    LayerConfig,
    ModelConfig,
    StateLayer,
    lanes_of_head,
    without_last,
)
from surefoot.models.decoder import Model
from surefoot.models.delta import DeltaRule, delta_layer, gated_heads, load_delta_rule
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import hf_config, num_after, with_kinds
from surefoot.models.layers import Mixer
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.mtp import MtpLayer
from surefoot.models.step import Step
from surefoot.models.workspace import Features
from surefoot.ops import ConvWeights, GluForm, RopeForm
from surefoot.ops.arrays import I64
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

INTERVAL = 4  # every fourth layer has attention
ROTATED = 0.25  # share of a head's lanes that rotate


@dataclass(frozen=True)
class DeltaNet:
    """A layer of the gated delta rule whose outputs are gated."""

    inner: Linear  # outputs: queries, keys and values together, the gate of the output, betas, alphas
    rule: DeltaRule  # makes the heads' outputs
    out: Linear  # back to the stream

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.inner,)

    def __call__(self, step: Step, x: Features) -> Features:
        """The heads' gated outputs, in the form that `out` takes."""
        sizes, parts = self.rule.sizes, step.project(self.inner, x, "delta parts")
        places = np.cumsum([sizes.conv_width, sizes.heads * sizes.value_dim, sizes.heads])
        mixed, gate, beta, alpha = np.split(parts, places, axis=1)
        return gated_heads(step, GluForm("silu"), gate, self.rule(step, mixed, alpha, beta), self.out)


@dataclass(frozen=True)
class GatedAttention:
    """Attention whose outputs are multiplied by gates."""

    attention: Attention  # with grouped queries
    gate: Linear  # one output for each lane of the heads' outputs

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.attention.qkv, self.gate)

    @property
    def out(self) -> Linear:
        return self.attention.out

    def __call__(self, step: Step, x: Features) -> Features:
        gate = step.project(self.gate, x, "attention gate")
        return gated_heads(step, GluForm("sigmoid"), gate, self.attention.attend(step, x), self.attention.out)


# ---- from files ----


def from_gguf(checkpoint: Checkpoint, family: str = "qwen3_5", tiled: bool = True) -> ModelConfig:
    """GGUF files hold norm weights to which 1 has been added, and heads of values in tiled order. Layers at their end
    only draft."""
    gguf = Gguf(checkpoint)
    heads, key_dim = gguf.need("ssm.time_step_rank"), gguf.need("ssm.state_size")
    delta = DeltaConfig(
        gguf.need("ssm.group_count"), heads, key_dim, lanes_of_head(gguf.need("ssm.inner_size"), heads),
        gguf.need("ssm.conv_kernel"), tiled,
    )  # fmt: skip
    interval, recurrent = gguf.get("full_attention_interval", INTERVAL), gguf.get("attention.recurrent_layers")

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        is_delta = bool(recurrent[i]) if recurrent is not None and i < len(recurrent) else (i + 1) % interval > 0
        return delta_layer(delta) if is_delta else LayerConfig(kv, rope)

    config = without_last(gguf_config(checkpoint, family, layer=layer), gguf.get("nextn_predict_layers", 0))
    return _drafting(_checked(replace(config, delta=delta)), checkpoint)


def from_hf(checkpoint: Checkpoint, family: str = "qwen3_5") -> ModelConfig:
    interval = checkpoint.metadata.get("full_attention_interval") or INTERVAL
    hf = with_kinds(checkpoint.metadata, every=interval, kind="linear_attention")
    rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    hf["rope_parameters"] = {"partial_rotary_factor": ROTATED, **rope}
    config = hf_config(hf, family)
    delta = DeltaConfig(
        need(hf, "linear_num_key_heads"), need(hf, "linear_num_value_heads"), need(hf, "linear_key_head_dim"),
        need(hf, "linear_value_head_dim"), need(hf, "linear_conv_kernel_dim"),
    )  # fmt: skip
    kept = zip(hf["layer_types"], config.layers, strict=True)
    layers = tuple(delta_layer(delta) if kind == "linear_attention" else layer for kind, layer in kept)
    norm, num_unused = replace(config.norm, weight_offset=1.0), _num_drafting(checkpoint, len(layers))
    config = _checked(replace(config, layers=layers, num_unused=num_unused, norm=norm, delta=delta))
    return _drafting(config, checkpoint)


def _join_name(layer: int) -> str:
    return f"blk.{layer}.nextn.eh_proj.weight"


def _num_drafting(checkpoint: Checkpoint, num_layers: int) -> int:
    """The layers after the model's own, if they draft."""
    return num_after(checkpoint, num_layers) if _join_name(num_layers) in checkpoint.tensors else 0


def _drafting(config: ModelConfig, checkpoint: Checkpoint) -> ModelConfig:
    """With the layer that drafts, if the file has exactly one, without embeddings and a head of its own."""
    own = (f"blk.{len(config.layers)}.nextn.{part}.weight" for part in ("embed_tokens", "shared_head_head"))
    is_known = config.num_unused == 1 and not any(name in checkpoint.tensors for name in own)
    if not is_known or _join_name(len(config.layers)) not in checkpoint.tensors:
        return config
    attention = config.layers[config.attention_layers[0]]
    row = LayerConfig(StateLayer(((1, config.width),)), None)
    return replace(config, drafting_layers=(attention, row))


def _checked(config: ModelConfig) -> ModelConfig:
    delta = config.delta
    assert delta is not None
    if delta.heads % delta.key_heads or delta.value_dim % 16:
        raise MetadataError(
            f"the metadata say {delta.heads} heads of {delta.value_dim} lanes for {delta.key_heads} heads of keys, "
            "where a multiple, and of 16 lanes, is allowed"
        )
    return config


def build(load: Loader) -> Model:
    model = load.model(lambda i: load.layer(i, _mixer(load, i)))
    return replace(model, drafting=_mtp_layer(load, model)) if load.config.drafting_layers else model


def _mixer(load: Loader, i: int) -> Mixer:
    return _delta_net(load, i) if i in load.config.states else _gated_attention(load, i)


def _mtp_layer(load: Loader, model: Model) -> MtpLayer:
    number, width = len(load.config.layers), load.config.width
    name, mixer = f"blk.{number}.nextn", _gated_attention(load, number)
    return MtpLayer(
        row=number + 1,
        embeddings=model.embeddings,
        model_norm=model.norm,
        token_norm=load.norm(f"{name}.enorm"),
        row_norm=load.norm(f"{name}.hnorm"),
        join=load.linear(f"{name}.eh_proj"),
        layer=load.layer(number, mixer),
        attention=mixer.attention,
        keys_values=Linear(mixer.attention.qkv.parts[1:]),
        norm=load.norm(f"{name}.shared_head_norm") if load.has(f"{name}.shared_head_norm") else model.norm,
        delay=ConvWeights(np.stack([np.ones(width, np.float32), np.zeros(width, np.float32)])),
    )


def _delta_net(load: Loader, i: int) -> DeltaNet:
    rule = load_delta_rule(load, i, "ssm_conv1d")
    return DeltaNet(_inner(load, f"blk.{i}", rule.sizes), rule, load.linear(f"blk.{i}.ssm_out"))


def _inner(load: Loader, name: str, sizes: DeltaConfig) -> Linear:
    """Files of Qwen 3-Next have the betas and alphas of each key head side by side, and some its other parts too."""
    if load.has(f"{name}.ssm_beta"):
        return load.linear(*(f"{name}.{part}" for part in ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha")))
    shared = sizes.heads // sizes.key_heads
    gates = load.rows_of(f"{name}.ssm_ba", _by_part(sizes.key_heads, shared, shared))
    if load.has(f"{name}.attn_qkv"):
        rest = load.linear(f"{name}.attn_qkv", f"{name}.attn_gate")
    else:
        values = shared * sizes.value_dim
        rest = load.rows_of(f"{name}.ssm_in", _by_part(sizes.key_heads, sizes.key_dim, sizes.key_dim, values, values))
    return Linear((*rest.parts, *gates.parts))


def _by_part(key_heads: int, *lengths: int) -> I64:
    """Rows in the order of parts, of a matrix whose rows are those of all parts for each key head."""
    rows = np.arange(key_heads * sum(lengths)).reshape(key_heads, -1)
    return np.concatenate([part.ravel() for part in np.split(rows, np.cumsum(lengths)[:-1], axis=1)])


def _gated_attention(load: Loader, i: int) -> GatedAttention:
    """The file has each head's queries and gates side by side."""
    heads, head_dim, name = load.config.heads, load.config.kv(i).key_dim, f"blk.{i}.attn"
    lanes = np.arange(2 * heads * head_dim).reshape(heads, 2, head_dim)
    queries, gates = (load.rows_of(f"{name}_q", lanes[:, half].ravel()) for half in range(2))
    keys_values = load.linear(f"{name}_k", f"{name}_v")
    return GatedAttention(load.attention(i, Linear((*queries.parts, *keys_values.parts))), gates)
