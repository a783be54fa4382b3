"""BERT and RoBERTa: encoders, whose tokens see all others and whose norms stand behind what is added to the stream.

The norm behind a layer is the first thing that the next layer does, and behind the last layer it is the model's own.
"""

from dataclasses import dataclass, replace

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import LayerConfig, ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import GluForm, NormForm, embed
from surefoot.ops.arrays import F32
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

ROBERTA = ("roberta", "xlm-roberta", "camembert")  # model types whose first positions are behind the padding's


@dataclass(frozen=True)
class EncoderLayer:
    """A layer of norm, attention, norm, feed-forward, whose norms replace the stream."""

    positions: F32 | None  # one row a position, added to the embeddings; None: this is not the first layer
    input_norm: Norm  # of the embeddings, or behind the layer before
    attention: Attention
    attention_norm: Norm  # behind attention
    ffn: FeedForward  # without gates

    def __call__(self, step: Step) -> None:
        if self.positions is not None:
            room = step.floats("positions", *step.h.shape)
            step.add(embed(step.backend, step.batch.positions, self.positions, out=room))
        x = step.renorm(self.input_norm, self.attention.qkv)
        step.add_projected(self.attention.out, self.attention(step, x))
        x = step.renorm(self.attention_norm, self.ffn.gate_up)
        self.ffn.add_to_stream(step, x)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    return _encoder(gguf_config(checkpoint, "bert"), GluForm("gelu", gates=False))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf = dict(checkpoint.metadata)
    _refuse(hf)
    config = hf_config(hf | {"rms_norm_eps": need(hf, "layer_norm_eps")}, "bert")
    encoder = _encoder(config, replace(config.glu, gates=False))
    return replace(encoder, context=config.context - _first_position(hf))


def _encoder(config: ModelConfig, glu: GluForm) -> ModelConfig:
    layers = tuple(LayerConfig(layer.kv, rope=None) for layer in config.layers)
    return replace(config, layers=layers, norm=NormForm("layer", config.norm.eps), glu=glu, sees_ahead=True)


def _refuse(hf: Json) -> None:
    if hf.get("is_decoder"):
        raise ValueError("BERT as a decoder is not supported: surefoot runs it as an encoder, for embeddings")
    if (kind := hf.get("position_embedding_type") or "absolute") != "absolute":
        raise ValueError(f"BERT with positions of the kind {kind!r} is not supported: absolute ones are")


def _first_position(hf: Json) -> int:
    return (hf.get("pad_token_id") or 0) + 1 if hf["model_type"] in ROBERTA else 0


def build(load: Loader) -> Model:
    return load.model(lambda number: _layer(load, number))


def _layer(load: Loader, number: int) -> EncoderLayer:
    before = f"blk.{number - 1}.layer_output_norm" if number else "token_embd_norm"
    return EncoderLayer(
        positions=None if number else _positions(load),
        input_norm=load.norm(before),
        attention=load.attention(number),
        attention_norm=load.norm(f"blk.{number}.attn_output_norm"),
        ffn=load.feed_forward(number),
    )


def _positions(load: Loader) -> F32:
    """What is added to the embeddings: a row for each position, and the one for texts of the first type."""
    rows = load.vector("position_embd.weight")[-load.config.context :]
    first_type = load.vector("token_types.weight")[:1] if load.has("token_types") else np.float32(0)
    return np.ascontiguousarray(rows + first_type)
