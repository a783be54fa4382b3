"""Families whose layers differ, from each other or from the usual ones: hybrids, gpt-oss, Gemma 4."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from surefoot.plan.named_shape import (
    NamedShape,
    Sizes,
    attention_sizes,
    feed_forward_sizes,
    gated_sizes,
    head_norm_sizes,
    norm_sizes,
    router_sizes,
    usual_layer,
    usual_metadata,
    usual_outside_layers,
    weights,
)

LFM2_ATTENDING = (2, 5, 8, 10, 12, 14)
LFM2_TAPS = 3
QWEN35_INTERVAL, QWEN35_TAPS = 4, 4
GEMMA4_INTERVAL, GLOBAL_HEADS, GLOBAL_LANES = 6, 2, 512


@dataclass(frozen=True)
class ShapeFamily:
    """The functions that make metadata and tensors of a shape. The usual function where none is given."""

    metadata: Callable[[NamedShape], dict[str, Any]] = usual_metadata  # by keys without the family
    outside_layers: Callable[[NamedShape], Sizes] = usual_outside_layers
    layer: Callable[[NamedShape, int], Sizes] = usual_layer
    attends: Callable[[int], bool] = lambda layer: True  # whether a layer has attention


def family_of(shape: NamedShape) -> ShapeFamily:
    return FAMILIES.get(shape.family, USUAL_FAMILY)


def is_dense(shape: NamedShape) -> bool:
    """Whether all layers have attention, and a token goes through all weights."""
    return not shape.experts and all(map(family_of(shape).attends, range(shape.layers)))


def _gpt_oss_metadata(shape: NamedShape) -> dict[str, Any]:
    return usual_metadata(shape) | {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
    }  # fmt: skip


def _gpt_oss_layer(shape: NamedShape, layer: int) -> Sizes:
    """Every matrix has a bias, and every head a sink."""
    biased = attention_sizes(shape) | feed_forward_sizes(shape) | router_sizes(shape)
    biases = {f"{name}.bias": size[:-1] for name, size in biased.items()}
    return usual_layer(shape, layer) | biases | {"attn_sinks.weight": (shape.heads,)}


def _lfm2_attends(layer: int) -> bool:
    return layer in LFM2_ATTENDING


def _lfm2_metadata(shape: NamedShape) -> dict[str, Any]:
    heads = [shape.kv_heads if _lfm2_attends(layer) else 0 for layer in range(shape.layers)]
    return usual_metadata(shape) | {"attention.head_count_kv": heads, "shortconv.l_cache": LFM2_TAPS}


def _lfm2_outside_layers(shape: NamedShape) -> Sizes:
    return weights({"token_embd": (shape.vocab, shape.width), "token_embd_norm": (shape.width,)})


def _lfm2_layer(shape: NamedShape, layer: int) -> Sizes:
    """Ten layers have a short convolution, six attention."""
    attends = _lfm2_attends(layer)
    mixer = attention_sizes(shape) | head_norm_sizes(shape) if attends else _convolution_sizes(shape)
    return weights(feed_forward_sizes(shape) | norm_sizes(shape) | mixer)


def _convolution_sizes(shape: NamedShape) -> Sizes:
    width = shape.width
    return {
        "shortconv.in_proj": (3 * width, width), "shortconv.out_proj": (width, width),
        "shortconv.conv": (width, LFM2_TAPS),
    }  # fmt: skip


def _qwen35_attends(layer: int) -> bool:
    return (layer + 1) % QWEN35_INTERVAL == 0


def _qwen35_metadata(shape: NamedShape) -> dict[str, Any]:
    return usual_metadata(shape) | {
        "rope.dimension_count": shape.lanes // 4, "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": QWEN35_INTERVAL, "ssm.conv_kernel": QWEN35_TAPS,
        "ssm.state_size": shape.delta_lanes, "ssm.group_count": shape.delta_heads,
        "ssm.time_step_rank": shape.delta_heads, "ssm.inner_size": shape.delta_values,
    }  # fmt: skip


def _qwen35_layer(shape: NamedShape, layer: int) -> Sizes:
    """Three layers of the gated delta rule to one of gated attention, without the layer that drafts."""
    around = weights(feed_forward_sizes(shape) | norm_sizes(shape))
    if not _qwen35_attends(layer):
        return around | _delta_rule_tensors(shape)
    gated_queries = {"attn_q": (2 * shape.heads * shape.lanes, shape.width)}
    return around | weights(attention_sizes(shape) | gated_queries | head_norm_sizes(shape))


def _delta_rule_tensors(shape: NamedShape) -> Sizes:
    heads, values, width = shape.delta_heads, shape.delta_values, shape.width
    sizes: Sizes = {
        "attn_qkv": (3 * values, width), "attn_gate": (values, width), "ssm_out": (width, values),
        "ssm_alpha": (heads, width), "ssm_beta": (heads, width),
        "ssm_conv1d": (3 * values, QWEN35_TAPS), "ssm_norm": (shape.delta_lanes,),
    }  # fmt: skip
    return weights(sizes) | {"ssm_a": (heads,), "ssm_dt.bias": (heads,)}


def _gemma4_slides(layer: int) -> bool:
    return (layer + 1) % GEMMA4_INTERVAL != 0


def _gemma4_metadata(shape: NamedShape) -> dict[str, Any]:
    slides = [_gemma4_slides(layer) for layer in range(shape.layers)]
    heads = [shape.kv_heads if slid else GLOBAL_HEADS for slid in slides]
    return usual_metadata(shape) | {
        "attention.head_count_kv": heads, "attention.key_length": GLOBAL_LANES,
        "attention.value_length": GLOBAL_LANES, "attention.key_length_swa": shape.lanes,
        "attention.value_length_swa": shape.lanes, "rope.dimension_count": GLOBAL_LANES,
        "rope.dimension_count_swa": shape.lanes, "rope.freq_base_swa": 10000.0,
        "attention.sliding_window_pattern": slides, "attention.shared_kv_layers": 0,
        "embedding_length_per_layer_input": 0, "final_logit_softcapping": 30.0,
    }  # fmt: skip


def _gemma4_outside_layers(shape: NamedShape) -> Sizes:
    return usual_outside_layers(shape) | weights({"rope_freqs": (GLOBAL_LANES // 2,)})


def _gemma4_layer(shape: NamedShape, layer: int) -> Sizes:
    """Every sixth layer is global: its heads are wider and fewer, and its keys are its values."""
    if _gemma4_slides(layer):
        return _gemma4_tensors(shape)
    wide = replace(shape, kv_heads=GLOBAL_HEADS, head_dim=GLOBAL_LANES)
    return {name: size for name, size in _gemma4_tensors(wide).items() if name != "attn_v.weight"}


def _gemma4_tensors(shape: NamedShape) -> Sizes:
    matrices = attention_sizes(shape) | _gemma4_feed_forward_sizes(shape)
    scales = {"ffn_gate_inp.scale": (shape.width,), "ffn_down_exps.scale": (shape.experts,)}
    layer_scale = weights({"layer_output_scale": (1,)})
    return weights(matrices | norm_sizes(shape) | router_sizes(shape)) | scales | layer_scale


def _gemma4_feed_forward_sizes(shape: NamedShape) -> Sizes:
    """A feed-forward beside the experts."""
    return gated_sizes(shape.ffn, shape.width) | {
        "ffn_gate_up_exps": (shape.experts, 2 * shape.expert_ffn, shape.width),
        "ffn_down_exps": (shape.experts, shape.width, shape.expert_ffn),
    }


USUAL_FAMILY = ShapeFamily()
FAMILIES = {  # by GGUF's name of the architecture
    "gpt-oss": ShapeFamily(metadata=_gpt_oss_metadata, layer=_gpt_oss_layer),
    "lfm2": ShapeFamily(_lfm2_metadata, _lfm2_outside_layers, _lfm2_layer, _lfm2_attends),
    "qwen35": ShapeFamily(metadata=_qwen35_metadata, layer=_qwen35_layer, attends=_qwen35_attends),
    "gemma4": ShapeFamily(_gemma4_metadata, _gemma4_outside_layers, _gemma4_layer),
}
