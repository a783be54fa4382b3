"""Loads an EAGLE-3 head for a target, after checking that it fits."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from surefoot.formats import ModelFormat
from surefoot.models.config import KvLayer, LayerConfig, ModelConfig, StateLayer
from surefoot.models.decoder import Model
from surefoot.models.drafting import DraftOutputs
from surefoot.models.eagle import EagleHead, EagleLayer, FeatureTap
from surefoot.models.gguf_config import gguf_config
from surefoot.models.hf_config import hf_config
from surefoot.models.load import Loader
from surefoot.models.shapes import LANES, MAX_LANES
from surefoot.models.workspace import Matrix
from surefoot.ops import TWO_LIMBS, Backend, ConvWeights, embed
from surefoot.ops.arrays import F32, I64
from surefoot.weights.checkpoint import Tensor
from surefoot.weights.eagle import EagleFile
from surefoot.weights.metadata import MetadataError

NUM_COMPARED = 64  # embeddings that tell whether the head's table is the target's
ALIKE = 1 / 16  # of the largest value: by how much rounding may change an embedding


def load_eagle(backend: Backend, file: EagleFile, target: Model, fmt: ModelFormat) -> EagleHead:
    """The head. Raises MetadataError if it is not one for this target."""
    try:
        return _load(backend, file, target, fmt)
    except MetadataError as wrong:
        raise MetadataError(f"{file.path} cannot draft for this model: {wrong}") from None


def _load(backend: Backend, file: EagleFile, target: Model, fmt: ModelFormat) -> EagleHead:
    config = _layer_config(file, target)
    numbers = tuple(sorted(file.layers or _usual_layers(len(target.config.layers))))
    _check_target(file, config, target, numbers)
    _check_shapes(file, config, target, len(numbers))
    load = Loader(backend, file.checkpoint, config, fmt)
    queries = load.linear("blk.0.attn_q")
    layer = EagleLayer(
        state=len(target.config.layers) + 1,
        embeddings=_embeddings(load, target),
        features_norm=load.norm_if_any("enc.output_norm"),
        fuse=load.linear("fc", inputs=TWO_LIMBS),  # features of three layers differ in size
        token_norm=load.norm("blk.0.attn_norm"),
        row_norm=load.norm("blk.0.attn_norm_2"),
        attention=replace(load.attention(0, queries), layer=len(target.config.layers), keeps=False),
        keys_values=load.linear("blk.0.attn_k", "blk.0.attn_v"),
        ffn_norm=load.norm("blk.0.ffn_norm"),
        ffn=load.feed_forward(0),
        outputs=_outputs(load, file, target),
        delay=ConvWeights(np.stack([np.ones(config.width, np.float32), np.zeros(config.width, np.float32)])),
        adds_normed=file.adds_normed,
        feeds_normed=file.feeds_normed,
    )
    width = target.config.width
    taps = {
        number: FeatureTap(part * width, len(numbers) * width, load.norm_if_any(f"fc_norm.{part}"))
        for part, number in enumerate(numbers)
    }
    row = LayerConfig(StateLayer(((1, config.width),)), None)
    return EagleHead(layer, taps, (config.layers[0], row))


def _layer_config(file: EagleFile, target: Model) -> ModelConfig:
    if "general.architecture" in file.checkpoint.metadata:
        return gguf_config(file.checkpoint, "llama", "neighbours", vocab_size=target.config.vocab_size)
    return hf_config(file.checkpoint.metadata, "llama")


def _usual_layers(count: int) -> tuple[int, ...]:
    """Low, middle, high: what EAGLE-3 takes where a file says nothing."""
    return (2, count // 2, count - 3)


def _outputs(load: Loader, file: EagleFile, target: Model) -> DraftOutputs:
    head = load.linear("output", inputs=TWO_LIMBS) if load.has("output") else None
    return DraftOutputs(load.norm("output_norm"), head, _ids(file, target))


def _ids(file: EagleFile, target: Model) -> I64 | None:
    """None where the head guesses all tokens by their ids."""
    ids, count = file.ids(), target.config.vocab_size
    return None if ids is None or np.array_equal(ids, np.arange(count)) else ids


def _embeddings(load: Loader, target: Model) -> Matrix:
    """The target's table, if the head has none or a copy of it: that is large, and rounding it twice gains nothing."""
    if not load.has("token_embd"):
        return target.embeddings
    own = load.checkpoint.tensors["token_embd.weight"]
    if own.shape[1] == target.config.width and _are_alike(load, target):
        return target.embeddings
    return load.linear("token_embd", inputs=TWO_LIMBS).parts[0].matrix


def _are_alike(load: Loader, target: Model) -> bool:
    ids = np.linspace(0, target.config.vocab_size - 1, NUM_COMPARED).astype(np.int64)
    theirs = embed(load.backend, ids, target.embeddings)
    own: F32 = load.checkpoint.floats("token_embd.weight")[ids]
    return bool(np.abs(own - theirs).max() <= ALIKE * np.abs(theirs).max())


# ---- checks ----


def _check_target(file: EagleFile, config: ModelConfig, target: Model, numbers: tuple[int, ...]) -> None:
    model = target.config
    if model.streams is not None or model.sees_ahead:
        raise MetadataError(f"{model.family} models have no single stream of tokens that see those before")
    if file.vocab_size is not None and file.vocab_size != model.vocab_size:
        raise MetadataError(f"it knows {file.vocab_size} tokens, and the model {model.vocab_size}")
    if len(set(numbers)) < len(numbers) or min(numbers) < 0 or max(numbers) > len(model.layers):
        raise MetadataError(f"it reads the layers {', '.join(map(str, numbers))} of {len(model.layers)}")
    kv = config.kv(0)
    if not isinstance(config.layers[0].kv, KvLayer) or kv.key_dim % LANES or kv.key_dim > MAX_LANES:
        raise MetadataError(f"its heads have {kv.key_dim} lanes, where a multiple of {LANES} is supported")
    if config.heads % kv.heads:
        raise MetadataError(f"it has {config.heads} heads for {kv.heads} heads of keys and values")


def _check_shapes(file: EagleFile, config: ModelConfig, target: Model, num_features: int) -> None:
    tensors, width = file.checkpoint.tensors, target.config.width
    fuse = tensors.get("fc.weight")
    if fuse is not None and fuse.shape != (config.width, num_features * width):
        raise MetadataError(
            f"it reads {num_features} rows of {fuse.shape[1] / num_features:g} lanes, and the model's have {width}"
        )
    for name, shape in _expected(config, target, num_features):
        if f"{name}.weight" not in tensors:
            raise MetadataError(f"it lacks {name}.weight")
        _check_shape(tensors, f"{name}.weight", shape)
        _check_shape(tensors, f"{name}.bias", shape[:1])
    for name, lanes in _norms_of_some(config, target, num_features):
        _check_shape(tensors, f"{name}.weight", (lanes,))
    _check_outputs(file, config, target)
    table = tensors.get("token_embd.weight")
    rows, lanes = (target.config.vocab_size, width) if table is None else table.shape
    if rows < target.config.vocab_size or lanes != config.width:
        needed = f"{target.config.vocab_size} of {config.width}"
        raise MetadataError(f"its embeddings are {rows} of {lanes} lanes, where {needed} are needed")


def _check_shape(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
    if name in tensors and tensors[name].shape != shape:
        raise MetadataError(f"{name} has the shape {tensors[name].shape}, where {shape} is expected")


def _expected(config: ModelConfig, target: Model, num_features: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    kv, width = config.kv(0), config.width
    queries, keys = config.heads * kv.key_dim, kv.heads * kv.key_dim
    yield "fc", (width, num_features * target.config.width)
    for name in ("blk.0.attn_norm_2", "blk.0.ffn_norm", "output_norm", "blk.0.attn_norm"):
        yield name, (width,)
    for part, lanes in (("q", queries), ("k", keys), ("v", keys)):
        yield f"blk.0.attn_{part}", (lanes, 2 * width)
    yield "blk.0.attn_output", (width, queries)
    for part in ("gate", "up"):
        yield f"blk.0.ffn_{part}", (config.ffn, width)
    yield "blk.0.ffn_down", (width, config.ffn)


def _norms_of_some(config: ModelConfig, target: Model, num_features: int) -> Iterator[tuple[str, int]]:
    """Norms that some heads have, and their lanes."""
    width = target.config.width
    yield "enc.output_norm", num_features * width
    yield from ((f"fc_norm.{part}", width) for part in range(num_features))
    yield from ((f"blk.0.attn_{part}_norm", config.kv(0).key_dim) for part in "qk")


def _check_outputs(file: EagleFile, config: ModelConfig, target: Model) -> None:
    ids, count = file.ids(), target.config.vocab_size
    output = file.checkpoint.tensors.get("output.weight")
    rows, lanes = (count, target.config.width) if output is None else output.shape
    if lanes != config.width:
        raise MetadataError(f"its rows have {config.width} lanes, and what makes logits of them takes {lanes}")
    if len(ids) != rows if ids is not None else rows != count:
        raise MetadataError(f"it makes {rows} logits, and does not say of which of the model's {count} tokens")
    if ids is not None and (ids.min() < 0 or ids.max() >= count):
        raise MetadataError(f"it drafts tokens beyond the model's {count}")
