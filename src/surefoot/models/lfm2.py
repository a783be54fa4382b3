"""LFM 2: Llama's layers, most of them with a gated short convolution in the place of attention."""

from dataclasses import dataclass, replace

from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, StateLayer
from surefoot.models.decoder import Model
from surefoot.models.gguf_config import Gguf, gguf_config
from surefoot.models.hf_config import Json, hf_config, of_all_layers
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.step import Step
from surefoot.models.workspace import Features
from surefoot.ops import ConvWeights, RopeForm, short_conv
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need


@dataclass(frozen=True)
class ShortConv:
    """A causal convolution between two gates. Its state is the last inputs of the convolution."""

    layer: int  # its number
    inner: Linear  # outputs: the gate before the convolution, the gate after it, what is convolved
    weights: ConvWeights  # of the convolution
    out: Linear  # back to the stream

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.inner,)

    def __call__(self, step: Step, x: Features) -> Features:
        """The gated convolution, in the form that `out` takes."""
        parts = step.project(self.inner, x, "conv parts")
        width = parts.shape[1] // 3
        gate_in, gate_out, values = (parts[:, i * width : (i + 1) * width] for i in range(3))
        y = step.floats("convolved", step.rows, width)
        short_conv(
            step.backend, values, self.weights, step.states[self.layer][0], step.batch.states,
            gate_in=gate_in, gate_out=gate_out, y=y,
        )  # fmt: skip
        return step.features("convolved", y, self.out)


def from_gguf(checkpoint: Checkpoint, family: str = "lfm2") -> ModelConfig:
    """Layers without heads of keys and values are those of convolutions."""
    gguf = Gguf(checkpoint)
    counts = gguf.kv_heads()
    conv = _conv_layer(gguf.need("embedding_length"), gguf.need("shortconv.l_cache"))

    def layer(i: int, kv: KvLayer, rope: RopeForm) -> LayerConfig:
        return LayerConfig(replace(kv, heads=counts[i]), rope) if counts[i] else conv

    return gguf_config(checkpoint, family, layer=layer)


def from_hf(checkpoint: Checkpoint, family: str = "lfm2") -> ModelConfig:
    hf = dict(checkpoint.metadata)
    count = need(hf, "num_hidden_layers")
    attention = hf.get("full_attn_idxs") or range(count)
    kinds = hf.get("layer_types") or ["full_attention" if i in attention else "conv" for i in range(count)]
    hf |= {"layer_types": kinds, "rms_norm_eps": need(hf, "norm_eps"), "intermediate_size": _num_units(hf)}
    config = hf_config(hf, family)
    conv = _conv_layer(config.width, need(hf, "conv_L_cache"))
    layers = zip(kinds, config.layers, strict=True)
    return replace(config, layers=tuple(conv if kind == "conv" else layer for kind, layer in layers))


def _num_units(hf: Json) -> int:
    """Of a feed-forward layer: config.json may give a number that is still to be adjusted."""
    units: int = hf.get("block_ff_dim") or of_all_layers(hf, "intermediate_size")
    if not hf.get("block_auto_adjust_ff_dim"):
        return units
    units, factor, multiple = int(2 * units / 3), hf.get("block_ffn_dim_multiplier"), need(hf, "block_multiple_of")
    return units if factor is None else -(-int(factor * units) // multiple) * multiple


def _conv_layer(width: int, num_taps: int) -> LayerConfig:
    return LayerConfig(StateLayer(((num_taps - 1, width),)), None)


def build(load: Loader) -> Model:
    return load.model(lambda i: load.layer(i, _short_conv(load, i) if i in load.config.states else None))


def _short_conv(load: Loader, i: int) -> ShortConv:
    name = f"blk.{i}.shortconv"
    return ShortConv(i, load.linear(f"{name}.in_proj"), load.conv(f"{name}.conv"), load.linear(f"{name}.out_proj"))
