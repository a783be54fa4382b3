"""BERT, RoBERTa, Nomic BERT, GTE, Jina: encoders, whose tokens see all others and whose norms stand behind what is
added to the stream.

The norm behind a layer is the first thing that the next layer does, and behind the last layer it is the model's own.
Nomic BERT and GTE have gates, and rotate queries and keys where the others add a vector for each position. Jina's have
gates, and logits that fall with the distance (ALiBi). Jina's for code norms queries and keys, and what attention adds
twice.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import LayerConfig, ModelConfig
from surefoot.models.decoder import Model
from surefoot.models.feed_forward import FeedForward
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import Json, hf_config
from surefoot.models.load import Loader
from surefoot.models.step import Norm, Step
from surefoot.ops import GluForm, NormForm, add, embed
from surefoot.ops.arrays import F32
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.metadata import need

JINA_V3 = "jina_embeddings_v3"
ROBERTA = ("roberta", "xlm-roberta", "camembert", JINA_V3)  # model types whose first positions are behind the padding's
# Model types that rotate queries and keys; `new` is what GTE's own files say.
ROTATING = ("gte", JINA_V3, "new", "nomic_bert")
ALIBI = "alibi"  # the kind of positions that Jina's models have: v2
ROTARY = "rotary"  # v3
GEGLU = "geglu"  # the kind of their feed-forward
# Keys of config.json in published files of Nomic BERT, which follow GPT-2.
GPT2_KEYS = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings", "rotary_emb_base": "rope_theta",
    "layer_norm_epsilon": "layer_norm_eps",
}  # fmt: skip


@dataclass(frozen=True)
class EncoderLayer:
    """A layer of norm, attention, norm, feed-forward, whose norms replace the stream."""

    added: F32 | None  # one row a position, added to the embeddings; None: nothing is
    input_norm: Norm  # of the embeddings, or behind the layer before
    attention: Attention
    attention_norm: Norm  # behind attention
    again_norm: Norm | None  # behind that, where the layer's input is added once more; None: it is not
    ffn: FeedForward

    def __call__(self, step: Step) -> None:
        if self.added is not None:
            room = step.floats("positions", *step.h.shape)
            step.add(embed(step.backend, step.batch.positions, self.added, out=room))
        x = step.renorm(self.input_norm, self.attention.qkv)
        if self.again_norm is None:
            step.add_projected(self.attention.out, self.attention(step, x))
        else:
            before = add(step.backend, step.h, out=step.floats("before", *step.h.shape))
            step.add_projected(self.attention.out, self.attention(step, x))
            step.renorm(self.attention_norm)
            step.add(before)
        x = step.renorm(self.again_norm or self.attention_norm, self.ffn.gate_up)
        self.ffn.add_to_stream(step, x)


def from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    config = gguf_config(checkpoint, "bert")
    match checkpoint.metadata["general.architecture"]:
        case "nomic-bert":
            return _encoder(checkpoint, config, config.glu)
        case "jina-bert-v3":
            return _encoder(checkpoint, config, GluForm("gelu", gates=False))
        case "jina-bert-v2":
            config = replace(_without_rope(config), alibi=True)
            return _encoder(checkpoint, config, GluForm("gelu", gates=_has_gates(checkpoint, config)))
    return _encoder(checkpoint, _without_rope(config), GluForm("gelu", gates=False))


def from_hf(checkpoint: Checkpoint) -> ModelConfig:
    hf: dict[str, Any] = {GPT2_KEYS.get(key, key): value for key, value in checkpoint.metadata.items()}
    _refuse(hf)
    config = hf_config(hf | {"rms_norm_eps": need(hf, "layer_norm_eps")}, "bert")
    config = replace(config, context=config.context - _first_position(hf))
    if hf["model_type"] in ROTATING or _is_jina_v3(hf):
        return _encoder(checkpoint, config, replace(config.glu, gates=not _is_jina_v3(hf)))
    config = replace(_without_rope(config), alibi=hf.get("position_embedding_type") == ALIBI)
    return _encoder(checkpoint, config, replace(config.glu, gates=hf.get("feed_forward_type") == GEGLU))


def _encoder(checkpoint: Checkpoint, config: ModelConfig, glu: GluForm) -> ModelConfig:
    norm, pairs = NormForm("layer", config.norm.eps), _takes_two_texts(checkpoint)
    return replace(config, norm=norm, glu=glu, sees_ahead=True, takes_two_texts=pairs)


def _is_jina_v3(hf: Json) -> bool:
    """Its own files call it XLM-RoBERTa."""
    return hf["model_type"] == JINA_V3 or hf.get("position_embedding_type") == ROTARY


def _without_rope(config: ModelConfig) -> ModelConfig:
    return replace(config, layers=tuple(LayerConfig(layer.kv, rope=None) for layer in config.layers))


def _has_gates(checkpoint: Checkpoint, config: ModelConfig) -> bool:
    """Of a Jina model: in a matrix of their own, or in one with the values."""
    both = checkpoint.tensors.get("blk.0.ffn_up.weight")
    return "blk.0.ffn_gate.weight" in checkpoint.tensors or (both is not None and both.shape[0] == 2 * config.ffn)


def _takes_two_texts(checkpoint: Checkpoint) -> bool:
    """Whether the model scores pairs, and tells their texts apart."""
    types = checkpoint.tensors.get("token_types.weight")
    return "cls.output.weight" in checkpoint.tensors and types is not None and types.shape[0] > 1


def _refuse(hf: Json) -> None:
    if hf.get("is_decoder"):
        raise ValueError("BERT as a decoder is not supported: surefoot runs it as an encoder, for embeddings")
    own = {"bert": (ALIBI,), "xlm-roberta": (ROTARY,), **dict.fromkeys(ROTATING, ("rope",))}
    kinds = ("absolute", *own.get(hf["model_type"], ()))
    if (kind := hf.get("position_embedding_type") or "absolute") not in kinds:
        raise ValueError(f"BERT with positions of the kind {kind!r} is not supported: {' and '.join(kinds)} are")
    if (kind := hf.get("feed_forward_type") or "original") not in ("original", GEGLU):
        raise ValueError(f"a feed-forward of the kind {kind!r} is not supported: original and {GEGLU} are")
    part, interleaved = hf.get("rotary_emb_fraction", 1.0), hf.get("rotary_emb_interleaved", False)
    if part != 1.0 or interleaved or hf.get("rotary_scaling_factor") or hf.get("prenorm"):
        raise ValueError("this Nomic BERT has another form than nomic-embed-text's, which is not supported")


def _first_position(hf: Json) -> int:
    return (hf.get("pad_token_id") or 0) + 1 if hf["model_type"] in ROBERTA else 0


def build(load: Loader) -> Model:
    model = load.model(lambda number: _layer(load, number))
    if not load.config.takes_two_texts:
        return model
    return replace(model, embeddings=_of_two_texts(load), remainder=None)


def _layer(load: Loader, number: int) -> EncoderLayer:
    before = f"blk.{number - 1}.layer_output_norm" if number else "token_embd_norm"
    again, ffn = load.norm_if_any(f"blk.{number}.attn_norm_2"), load.feed_forward(number)
    # Jina's for code has the values before the gates in a matrix of both.
    values_first = again is not None and not load.has(f"blk.{number}.ffn_gate")
    return EncoderLayer(
        added=None if number else _added(load),
        input_norm=load.norm(before),
        attention=load.attention(number),
        attention_norm=load.norm(f"blk.{number}.attn_output_norm"),
        again_norm=again,
        ffn=replace(ffn, values_first=values_first),
    )


def _added(load: Loader) -> F32 | None:
    """What is added to the embeddings: a row for each position, and the one for texts of the first type."""
    context = load.config.context
    first_type = load.vector("token_types.weight")[:1] if load.has("token_types") else None
    if load.has("position_embd"):
        rows = load.vector("position_embd.weight")[-context:]
        return np.ascontiguousarray(rows if first_type is None else rows + first_type)
    return None if first_type is None else np.repeat(first_type, context, axis=0)


def _of_two_texts(load: Loader) -> F32:
    """The embeddings, and again as they are in the second text, less what is added for the first type."""
    rows, types = load.vector("token_embd.weight"), load.vector("token_types.weight")
    return np.concatenate([rows, rows + (types[1] - types[0])])
