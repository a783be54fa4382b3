"""Gemma 4: Gemma 3's layers with heads and keys by kind of layer, and parts that only some sizes have.

- Global layers have heads of another size, rotate a part of their lanes, and may use keys as values.
- The last layers may read the keys and values of earlier ones.
- Each layer may add an embedding of the token that is its own, gated by the stream.
- Experts may stand beside the feed-forward: both read the stream, and their outputs are added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, MoeConfig, SharedKv, inverse_root
from surefoot.models.decoder import Layer, Model
from surefoot.models.feed_forward import Experts
from surefoot.models.gemma2 import PostNormLayer, add_normed, post_norm_layer
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config, of_all_layers
from surefoot.models.linear import EmbeddingTable, Linear
from surefoot.models.load import STANDING, Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import FactorScaling, GluForm, RopeForm, Router, add, embed, glu, norm, norm_heads
from surefoot.ops.arrays import F32
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

PATTERN = 6  # every sixth layer is global, if the file does not say
ROPE = {
    "sliding_attention": {"rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
}


@dataclass(frozen=True)
class LayerInputs:
    """Makes each layer's embedding of the tokens: half from a table, half projected from the usual embedding."""

    table: EmbeddingTable  # [vocabulary, layers * lanes]
    projection: Linear  # from the stream to all layers' lanes
    norm: Norm  # of one layer's lanes
    lanes: int  # of one layer

    def __call__(self, step: Step) -> None:
        """Leaves the embeddings in the workspace, where `layer_inputs` finds them."""
        projected = step.project(self.projection, step.stream(self.projection), "layer inputs")
        norm_heads(step.backend, self.norm.form, projected.reshape(step.rows, -1, self.lanes), self.norm.weight)
        looked_up = step.floats("looked up", *projected.shape)
        embed(step.backend, step.batch.tokens, self.table.matrix, math.sqrt(self.lanes), out=looked_up)
        add(step.backend, projected, looked_up, inverse_root(2), out=projected)


@dataclass(frozen=True)
class LayerInput:
    """Adds the layer's own embedding of the token to the stream, gated by the stream."""

    glu: GluForm  # the gate's activation
    columns: slice  # of the layer in all layers' embeddings
    num_columns: int  # of all layers
    gate: Linear  # from the stream to the layer's lanes
    out: Linear  # back to the stream
    norm: Norm  # of what is added

    def __call__(self, step: Step) -> None:
        gate = step.project(self.gate, step.stream(self.gate), "input gate")
        inputs = step.floats("layer inputs", step.rows, self.num_columns)[:, self.columns]
        x = step.workspace.features("gated input", gate.shape, self.out.matrices)
        glu(step.backend, self.glu, gate, inputs, y=x.floats, quantised=x.quantised)
        add_normed(step, self.norm, step.project(self.out, x, "delta"))


@dataclass(frozen=True)
class ExpertsBeside:
    """Experts that read the same stream as the feed-forward beside them."""

    dense_norm: Norm  # of the feed-forward's output
    router_norm: Norm  # before the router
    norm: Norm  # before the experts
    experts: Experts  # with their router
    after_norm: Norm  # of the experts' output

    def add_to(self, step: Step, dense: F32) -> None:
        """Norms the feed-forward's output in place and adds the experts' to it."""
        norm(step.backend, self.dense_norm.form, dense, self.dense_norm.weight, y=dense)
        routes = self.experts.route(step, step.norm(self.router_norm, self.experts.gate))
        out = step.floats("experts", *dense.shape)
        self.experts.apply(step, step.norm(self.norm, self.experts.gate), routes, None, out)
        norm(step.backend, self.after_norm.form, out, self.after_norm.weight, y=out)
        add(step.backend, dense, out, out=dense)


@dataclass(frozen=True)
class Gemma4Layer:
    """Gemma's layer, and what may follow it."""

    layer: PostNormLayer  # with experts beside its feed-forward, or none
    input: LayerInput | None  # None: tokens have no embedding for each layer
    scale: float  # that the stream is multiplied by at the end

    def __call__(self, step: Step) -> None:
        self.layer(step)
        if self.input is not None:
            self.input(step)
        if self.scale != 1.0:
            step.scale(self.scale)


@dataclass(frozen=True)
class FirstLayer:
    """The first layer, before which the inputs of all layers are made."""

    inputs: LayerInputs  # of all layers
    layer: Gemma4Layer  # the first

    def __call__(self, step: Step) -> None:
        self.inputs(step)
        self.layer(step)


# ---- configuration ----


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    gguf = Gguf(checkpoint)
    slides, kv_heads = gguf.slides(every=PATTERN), gguf.by_layer("attention.head_count_kv")
    ffn, window = gguf.by_layer("feed_forward_length"), gguf.need("attention.sliding_window")
    lanes = gguf.need("attention.key_length_swa")
    local = RopeForm(gguf.get("rope.dimension_count_swa", lanes), gguf.get("rope.freq_base_swa", 10000.0))

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        if slides[i]:
            return LayerConfig(KvLayer(kv_heads[i], lanes, lanes, window), local, ffn[i])
        return LayerConfig(replace(kv, heads=kv_heads[i]), rope, ffn[i])

    config = gguf_config(checkpoint, "gemma4", layer=layer)
    top_k = gguf.need("expert_used_count") if gguf.get("expert_count", 0) else 0
    return _gemma4(
        replace(config, ffn=max(ffn), glu=GluForm("gelu_tanh")),
        gguf.get("attention.shared_kv_layers", 0),
        top_k,
        logit_softcap=gguf.get("final_logit_softcapping", 0.0),
        layer_lanes=gguf.get("embedding_length_per_layer_input", 0),
    )


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    if hf.get("use_bidirectional_attention") == "all":
        raise ValueError("gemma4 models whose tokens all see each other are not supported")
    count, shared = need(hf, "num_hidden_layers"), hf.get("num_kv_shared_layers") or 0
    pattern = ["sliding_attention" if (i + 1) % PATTERN else "full_attention" for i in range(count - 1)]
    hf["layer_types"] = hf.get("layer_types") or [*pattern, "full_attention"]
    hf["rope_parameters"] = hf.get("rope_parameters") or ROPE
    own = count - shared if hf.get("use_double_wide_mlp") else count
    config = hf_config({**hf, "rope_parameters": ROPE["sliding_attention"]}, "gemma4")
    layers = (_hf_layer(hf, i, layer, 1 if i < own else 2) for i, layer in enumerate(config.layers))
    return _gemma4(
        replace(config, layers=tuple(layers), ffn=config.ffn * (1 if own == count else 2)),
        shared,
        need(hf, "top_k_experts") if hf.get("enable_moe_block") else 0,
        logit_softcap=hf.get("final_logit_softcapping") or 0.0,
        layer_lanes=hf.get("hidden_size_per_layer_input") or 0,
    )


def _hf_layer(hf: Json, i: int, layer: LayerConfig, wide: int) -> LayerConfig:
    """Global layers have sizes of their own, which newer files list by layer."""
    kind, kv, ffn = hf["layer_types"][i], layer.kv, wide * of_all_layers(hf, "intermediate_size")
    assert isinstance(kv, KvLayer)
    sizes = _sizes(hf, i) if kind == "full_attention" else {}
    lanes, heads = sizes.get("head_dim") or kv.key_dim, sizes.get("num_key_value_heads") or kv.heads
    return LayerConfig(KvLayer(heads, lanes, lanes, kv.window), _rope(need(hf["rope_parameters"], kind), lanes), ffn)


def _sizes(hf: Json, i: int) -> Mapping[str, Any]:
    listed = hf.get("per_layer_config") or {}
    if own := listed.get(i) or listed.get(str(i)):
        return dict(own)
    sizes = {"head_dim": hf.get("global_head_dim") or 512}
    heads = hf.get("num_global_key_value_heads") if hf.get("attention_k_eq_v") else None
    return {**sizes, "num_key_value_heads": heads} if heads else sizes


def _rope(rope: Json, lanes: int) -> RopeForm:
    """Proportional: frequencies as if all lanes rotated, but only the first part of them does."""
    kind, theta = rope.get("rope_type") or "default", need(rope, "rope_theta")
    if kind == "default":
        return RopeForm(lanes, theta)
    if kind != "proportional":
        raise ValueError(f"rope scaling {kind!r} is not supported in gemma4")
    rotating = int((rope.get("partial_rotary_factor") or 1.0) * lanes // 2)
    factors = [float(rope.get("factor") or 1.0)] * rotating + [STANDING] * (lanes // 2 - rotating)
    return RopeForm(lanes, theta, FactorScaling(tuple(factors)))


def _gemma4(config: ModelConfig, shared: int, top_k: int, logit_softcap: float, layer_lanes: int) -> ModelConfig:
    return replace(
        config,
        layers=sharing(config.layers, shared),
        scale=1.0,
        embedding_scale=math.sqrt(config.width),
        logit_softcap=logit_softcap,
        layer_lanes=layer_lanes,
        moe=MoeConfig(Router(top_k, normalise=True)) if top_k else None,
    )


def sharing(layers: Sequence[LayerConfig], shared: int) -> tuple[LayerConfig, ...]:
    """The last layers read the keys and values of the last layer of their kind that has its own."""
    own = layers[: len(layers) - shared]
    last = {layer.kv: i for i, layer in enumerate(own)}
    missing = [layer for layer in layers[len(own) :] if layer.kv not in last]
    if missing:
        raise ValueError(f"the metadata say that {shared} of {len(layers)} layers share keys and values: none is alike")
    return (*own, *(replace(layer, kv=SharedKv(last[layer.kv])) for layer in layers[len(own) :]))


# ---- weights ----


def build(load: Loader) -> Model:
    return load.model(partial(_layer, load))


def layer_inputs(load: Loader) -> LayerInputs:
    """The projection's scale is left out: the norm that follows sees it in its epsilon alone."""
    config = load.config
    return LayerInputs(
        EmbeddingTable(load.linear("per_layer_token_embd").parts[0].matrix),
        load.linear("per_layer_model_proj"),
        Norm(replace(config.norm, eps=config.norm.eps * config.width), load.vector("per_layer_proj_norm.weight")),
        config.layer_lanes,
    )


def _layer(load: Loader, i: int) -> Layer:
    scale, lanes = f"blk.{i}.layer_output_scale.weight", load.config.layer_lanes
    usual = post_norm_layer(load, i)
    attention = replace(usual.attention, value_norm=load.config.norm)
    beside = _experts(load, i) if load.config.moe is not None else None
    layer = Gemma4Layer(
        replace(usual, attention=attention, beside=beside),
        _input(load, i) if lanes else None,
        float(load.vector(scale)[0]) if scale in load.checkpoint.tensors else 1.0,
    )
    return FirstLayer(layer_inputs(load), layer) if lanes and i == 0 else layer


def _input(load: Loader, i: int) -> LayerInput:
    lanes, name = load.config.layer_lanes, f"blk.{i}"
    return LayerInput(
        load.config.glu,
        slice(i * lanes, (i + 1) * lanes),
        lanes * len(load.config.layers),
        load.linear(f"{name}.inp_gate"),
        load.linear(f"{name}.proj"),
        load.norm(f"{name}.post_norm"),
    )


def _experts(load: Loader, i: int) -> ExpertsBeside:
    """The router's input is normed without weights, then multiplied by a vector and by the root of the width."""
    name, config = f"blk.{i}", load.config
    router = load.vector(f"{name}.ffn_gate_inp.scale") * np.float32(inverse_root(config.width))
    return ExpertsBeside(
        load.norm(f"{name}.post_ffw_norm_1"),
        Norm(config.norm, router),
        load.norm(f"{name}.pre_ffw_norm_2"),
        load.mixture(i),
        load.norm(f"{name}.post_ffw_norm_2"),
    )
