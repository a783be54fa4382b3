"""Granite 4: layers of Mamba-2 and of attention, each followed by feed-forward, with experts beside it or without. Also
its forms with attention alone."""

from dataclasses import replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, MoeConfig, ScanConfig, lanes_of_head
from surefoot.models.decoder import Model
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.granite import with_gguf_multipliers, with_hf_multipliers
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.load import Loader
from surefoot.models.mamba2 import load_mixer, scan_layer
from surefoot.ops import RopeForm, Router, Scoring
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

MAMBA = ("mamba", "linear_attention")  # in config.json's layer_types


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """Layers without heads of keys and values are those of Mamba-2."""
    gguf = Gguf(checkpoint)
    counts, rotates = gguf.kv_heads(), gguf.get("rope.scaling.finetuned", True)
    sizes = None if all(counts) else _checked(gguf.scan(gguf.norm_eps()))

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        if sizes is not None and not counts[i]:
            return scan_layer(sizes)
        return LayerConfig(replace(kv, heads=counts[i]), rope if rotates else None)

    config = replace(gguf_config(checkpoint, "granitemoehybrid", "neighbours", layer), scan=sizes)
    config = replace(config, moe=_experts(gguf.need("expert_used_count")) if gguf.get("expert_count") else None)
    return with_gguf_multipliers(config, gguf)


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    """config.json's intermediate_size is that of one expert; feed-forward is as wide as a shared expert."""
    hf = dict(checkpoint.metadata)
    if (position := hf.get("position_embedding_type")) not in (None, "nope", "rope"):
        raise ValueError(f"positions by {position!r} are not supported: rope and none are")
    kinds = hf.get("layer_types") or ["attention"] * need(hf, "num_hidden_layers")
    config = hf_config(
        hf
        | {"layer_types": ["full_attention"] * len(kinds), "intermediate_size": need(hf, "shared_intermediate_size")},
        "granitemoehybrid",
    )
    sizes = _checked(_sizes(hf, config)) if any(kind in MAMBA for kind in kinds) else None

    def layer(kind: str, attention: LayerConfig) -> LayerConfig:
        if sizes is not None and kind in MAMBA:
            return scan_layer(sizes)
        return attention if position == "rope" else replace(attention, rope=None)

    layers = tuple(layer(kind, attention) for kind, attention in zip(kinds, config.layers, strict=True))
    moe = _experts(need(hf, "num_experts_per_tok")) if hf.get("num_local_experts") else None
    return with_hf_multipliers(replace(config, layers=layers, scan=sizes, moe=moe), hf)


def _sizes(hf: Json, config: ModelConfig) -> ScanConfig:
    heads, head_dim = need(hf, "mamba_n_heads"), need(hf, "mamba_d_head")
    if head_dim == "auto":
        head_dim = lanes_of_head(need(hf, "mamba_expand") * config.width, heads)
    return ScanConfig(
        heads, head_dim, need(hf, "mamba_n_groups"), need(hf, "mamba_d_state"), need(hf, "mamba_d_conv"), 1,
        config.norm.eps,
    )  # fmt: skip


def _checked(sizes: ScanConfig) -> ScanConfig:
    """Files with more groups exist in none of Granite's sizes, and programs differ in whether they norm by group."""
    if sizes.groups != 1:
        raise MetadataError(f"the metadata say {sizes.groups} groups of Mamba-2's heads, where 1 is supported")
    return replace(sizes, norm_groups=1)


def _experts(top_k: int) -> MoeConfig:
    return MoeConfig(Router(top_k, Scoring.SOFTMAX_CHOSEN), shared=True)


def build(load: Loader) -> Model:
    return load.model(lambda i: load.layer(i, load_mixer(load, i)))
