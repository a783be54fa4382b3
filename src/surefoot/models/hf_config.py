"""Reads a model's config from a Hugging Face config.json, as far as families have it in common."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, QueryGrowth, inverse_root, lanes_of_head
from surefoot.ops import FactorScaling, GluForm, LinearScaling, Llama3Scaling, NormForm, RopeForm, YarnScaling
from surefoot.ops.rope import Scaling
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

Json = Mapping[str, Any]
ACTIVATIONS: dict[str, Literal["silu", "gelu", "gelu_tanh"]] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def hf_config(config: Json, family: str, pairing: Literal["halves", "neighbours"] = "halves") -> ModelConfig:
    """The config of a model of grouped-query attention and gated feed-forward layers."""
    width, heads = need(config, "hidden_size"), need(config, "num_attention_heads")
    head_dim = config.get("head_dim") or lanes_of_head(width, heads)
    kv_heads = config.get("num_key_value_heads") or heads
    activation = config.get("hidden_activation") or config.get("hidden_act") or "silu"
    if activation not in ACTIVATIONS:
        raise ValueError(f"the activation {activation!r} is not supported: {', '.join(ACTIVATIONS)} are")
    layers = tuple(
        LayerConfig(KvLayer(kv_heads, head_dim, head_dim, window), hf_rope(config, head_dim, pairing, kind))
        for window, kind in layer_windows(config)
    )
    return ModelConfig(
        family=family,
        vocab_size=need(config, "vocab_size"),
        width=width,
        heads=heads,
        ffn=_num_units(config),
        context=need(config, "max_position_embeddings"),
        layers=layers,
        norm=NormForm("rms", need(config, "rms_norm_eps")),
        glu=GluForm(ACTIVATIONS[activation]),
        scale=inverse_root(head_dim),
    )


def with_kinds(config: Json, every: int, kind: str = "sliding_attention") -> dict[str, Any]:
    """The config with the kinds of its layers: as it lists them, or all of that kind but each `every`-th."""
    numbers = range(1, need(config, "num_hidden_layers") + 1)
    listed = config.get("layer_types") or [kind if number % every else "full_attention" for number in numbers]
    return {**config, "layer_types": listed}


def num_drafting(checkpoint: Checkpoint, config: ModelConfig) -> int:
    """Layers that a folder has after the model's own: they draft."""
    return min(checkpoint.metadata.get("num_nextn_predict_layers") or 0, num_after(checkpoint, len(config.layers)))


def num_after(checkpoint: Checkpoint, num_layers: int) -> int:
    """Layers of which there are tensors after the first `num_layers`."""
    numbers = {int(name.split(".")[1]) for name in checkpoint.tensors if name.startswith("blk.")}
    return sum(number >= num_layers for number in numbers)


def of_all_layers(config: Json, key: str) -> int:
    """A number that a file may give once for each layer."""
    values = need(config, key)
    values = values if isinstance(values, list) else [values]
    if len(set(values)) != 1:
        raise MetadataError(f"{key} says {values[:8]}, where one number for all layers is supported")
    number: int = values[0]
    return number


def _num_units(config: Json) -> int:
    """Of a feed-forward layer; of an expert, where all layers have experts."""
    only_experts = config.get("intermediate_size") is None and config.get("moe_intermediate_size") is not None
    return of_all_layers(config, "moe_intermediate_size" if only_experts else "intermediate_size")


def layer_windows(config: Json) -> list[tuple[int, str]]:
    """The window of each layer (0: none), and its kind in config.json's words."""
    count, window = need(config, "num_hidden_layers"), config.get("sliding_window") or 0
    if not config.get("use_sliding_window", True):
        window = 0
    kinds = config.get("layer_types") or ["sliding_attention"] * count
    if len(kinds) != count:
        raise MetadataError(f"config.json has {len(kinds)} layer_types for {count} layers: fetch it again")
    return [(window if kind == "sliding_attention" else 0, kind) for kind in kinds]


def hf_rope(config: Json, head_dim: int, pairing: Literal["halves", "neighbours"], kind: str) -> RopeForm:
    """The RoPE of layers of that kind. Newer files have all of it in rope_parameters, some of them by kind of layer."""
    rope: Json = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get(kind) or rope
    theta = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    part = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    dim = int(head_dim * part)
    return RopeForm(dim, theta, _scaling(config, rope, dim), pairing)


def hf_growth(config: Json) -> QueryGrowth | None:
    rope = need(config, "rope_parameters")
    if not rope.get("llama_4_scaling_beta"):
        return None
    return QueryGrowth(rope["llama_4_scaling_beta"], need(rope, "original_max_position_embeddings"))


def _scaling(config: Json, rope: Json, dim: int) -> Scaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    context = need(config, "max_position_embeddings")
    key = "original_max_position_embeddings"
    original = rope.get(key) or config.get(key) or context
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(need(rope, "factor"))
        case "ntk":
            return _ntk(rope, dim)
        case "llama3":
            factor, low, high = (need(rope, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
            return Llama3Scaling(factor, low, high, original)
        case "yarn":
            return YarnScaling(
                need(rope, "factor"), original, rope.get("beta_fast") or 32.0, rope.get("beta_slow") or 1.0,
                rope.get("attention_factor"), rope.get("mscale"), rope.get("mscale_all_dim"),
                rope.get("truncate", True),
            )  # fmt: skip
        case "longrope":
            return FactorScaling(tuple(need(rope, "short_factor")), _long_attention_factor(rope, context, original))
    raise ValueError(f"rope scaling {kind!r} is not supported")


def _ntk(rope: Json, dim: int) -> FactorScaling:
    """The base is multiplied by the factor, and each frequency divided by its power 2 / dim."""
    if rope.get("mixed_b") is not None:
        raise ValueError("rope scaling 'ntk' with mixed_b is not supported")
    growth = Decimal(need(rope, "factor")).ln() * 2 / dim
    return FactorScaling(tuple(float((growth * (lane + 1)).exp()) for lane in range(dim // 2)))


def _long_attention_factor(rope: Json, context: int, original: int) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    factor = Decimal(context) / original
    return float((1 + factor.ln() / Decimal(original).ln()).sqrt()) if factor > 1 else 1.0
