"""Nemotron-H: layers of Mamba-2, of attention without positions, and of feed-forward with the square of relu.

Nemotron 3 has layers of experts in the place of feed-forward."""

from dataclasses import dataclass, replace
from functools import partial

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, MoeConfig, ScanConfig, StateLayer, without_last
from surefoot.models.decoder import Layer, Model
from surefoot.models.feed_forward import Feed, feed_forward
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.layers import Mixer, mix
from surefoot.models.load import Loader
from surefoot.models.mamba2 import load_mixer, scan_layer
from surefoot.models.routers import gguf_router, hf_router
from surefoot.models.step import Norm, Step
from surefoot.ops import GluForm, RopeForm
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import MetadataError, need

# The kinds of layers: in config.json's pattern, and in its list of names, the older and the newer.
MAMBA, ATTENTION = ("M", "mamba", "linear_attention"), ("*", "attention", "full_attention")
FEED_FORWARD, EXPERTS = ("-", "mlp"), ("E", "moe")
FORM = GluForm("relu2", gates=False)
NOTHING = LayerConfig(StateLayer(()), None)  # of layers of feed-forward


@dataclass(frozen=True)
class MixerLayer:
    """A layer of norm and mixer."""

    norm: Norm  # before the mixer
    mixer: Mixer  # Mamba-2 or attention

    def __call__(self, step: Step) -> None:
        mix(step, self.norm, self.mixer)


@dataclass(frozen=True)
class FeedForwardLayer:
    """A layer of norm, feed-forward or experts or both."""

    norm: Norm  # before the feeds
    feeds: tuple[Feed, ...]  # feed-forward, experts

    def __call__(self, step: Step) -> None:
        feed_forward(step, self.norm, *self.feeds)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    """Layers with units are those of feed-forward; of the others, those without heads of keys and values are Mamba-2's.
    Layers at the file's end may only be for drafting."""
    gguf = Gguf(checkpoint)
    if gguf.get("moe_latent_size"):
        raise ValueError("experts that work in a narrower space (Nemotron 3 Super) are not supported")
    heads, units = gguf.kv_heads(), gguf.by_layer("feed_forward_length")
    eps = gguf.norm_eps()
    sizes = gguf.scan(eps)

    def layer(i: int, kv: KvLayer, _: RopeForm) -> LayerConfig:
        if units[i]:
            return NOTHING
        return LayerConfig(replace(kv, heads=heads[i]), None) if heads[i] else scan_layer(sizes)

    config = replace(gguf_config(checkpoint, "nemotron_h", layer=layer), glu=FORM, scan=sizes)
    config = without_last(config, gguf.get("nextn_predict_layers", 0))
    if not gguf.get("expert_count"):
        return config
    return replace(config, moe=MoeConfig(gguf_router(gguf, normalise=False), shared=True))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    _refuse(hf)
    kinds = list(hf.get("layers_block_type") or need(hf, "hybrid_override_pattern"))
    config = hf_config(
        hf | {"num_hidden_layers": len(kinds), "rms_norm_eps": need(hf, "layer_norm_epsilon"), "layer_types": None},
        "nemotron_h",
    )
    sizes = ScanConfig(
        need(hf, "mamba_num_heads"), need(hf, "mamba_head_dim"), need(hf, "n_groups"), need(hf, "ssm_state_size"),
        need(hf, "conv_kernel"), need(hf, "n_groups"), config.norm.eps,
    )  # fmt: skip
    layers = tuple(_layer_config(kind, layer, sizes) for kind, layer in zip(kinds, config.layers, strict=True))
    config = replace(config, layers=layers, glu=FORM, scan=sizes)
    if not any(kind in EXPERTS for kind in kinds):
        return config
    return replace(config, ffn=need(hf, "moe_intermediate_size"), moe=MoeConfig(hf_router(hf), shared=True))


def _refuse(hf: Json) -> None:
    """Refuses what is not supported, by name."""
    kinds = hf.get("layers_block_type") or hf.get("hybrid_override_pattern") or ""
    if any(kind in EXPERTS for kind in kinds) and any(kind in FEED_FORWARD for kind in kinds):
        raise ValueError("layers of feed-forward beside layers of experts are not supported")
    if (activation := hf.get("mlp_hidden_act", "relu2")) != "relu2":
        raise ValueError(f"the activation {activation!r} is not supported: relu2 is")
    if hf.get("moe_latent_size"):
        raise ValueError("experts that work in a narrower space (Nemotron 3 Super) are not supported")
    if hf.get("sliding_window"):
        raise ValueError("Nemotron-H with a sliding window is not supported")


def _layer_config(kind: str, attention: LayerConfig, sizes: ScanConfig) -> LayerConfig:
    if kind in MAMBA:
        return scan_layer(sizes)
    if kind in ATTENTION:
        return replace(attention, rope=None)
    if kind in FEED_FORWARD + EXPERTS:
        return NOTHING
    raise MetadataError(f"a layer of kind {kind!r} is not supported")


def build(load: Loader) -> Model:
    return load.model(partial(_layer, load))


def _layer(load: Loader, i: int) -> Layer:
    norm, layer = load.norm(f"blk.{i}.attn_norm"), load.config.layers[i]
    if layer != NOTHING:
        return MixerLayer(norm, load_mixer(load, i))
    return FeedForwardLayer(norm, load.feeds(i))
