"""Reads EAGLE-3 draft heads as they are published: folders of SpecForge (and EAGLE itself), folders of speculators
(vLLM), and GGUF files of llama.cpp. All become one checkpoint with GGUF's names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.core.model_files import MAX_CONFIG_BYTES, in_folder, read_json
from surefoot.ops.arrays import I64
from surefoot.weights.checkpoint import Checkpoint
from surefoot.weights.gguf import GgufFile
from surefoot.weights.huggingface import HuggingFaceCheckpoint, stored_tensors
from surefoot.weights.metadata import MetadataError, check_config, need
from surefoot.weights.quantised import collect_quantised

EAGLE = "eagle3"  # GGUF's architecture, and speculators' kind of model
IDS = ("d2t.weight", "d2t")  # names of the tensor of token ids, of folders and of GGUF files
Json = Mapping[str, Any]


@dataclass(frozen=True)
class EagleFile:
    """A published head, opened but not read."""

    path: Path
    checkpoint: Checkpoint  # its metadata are those of the head's layer
    layers: tuple[int, ...] | None  # of the target, before which its features are taken; None: the usual three
    target: str  # the model that it was trained for; empty: not stated
    vocab_size: int | None  # of that model; None: not stated
    adds_normed: bool = False  # attention is added to the normed row before, not to the row itself
    feeds_normed: bool = False  # further guesses read the normed row
    ids_are_offsets: bool = True  # what the file lists is added to the number of its place

    def ids(self) -> I64 | None:
        """The token id of each row of the head's matrix of logits; None: rows are ids."""
        name = next((name for name in IDS if name in self.checkpoint.tensors), None)
        if name is None:
            return None
        listed = self.checkpoint.floats(name).astype(np.int64)
        return listed + np.arange(len(listed)) if self.ids_are_offsets else listed


def is_eagle_config(metadata: Json) -> bool:
    """Whether config.json, or a GGUF file's metadata, are those of an EAGLE-3 head."""
    if metadata.get("general.architecture") == EAGLE or metadata.get("speculators_model_type") == EAGLE:
        return True
    listed = metadata.get("architectures")
    names = listed if isinstance(listed, list) else []
    return "draft_vocab_size" in metadata or any("eagle3" in str(name).lower() for name in names)


def is_eagle(path: Path) -> bool:
    """path: a GGUF file or a folder."""
    if path.is_dir():
        return is_eagle_config(_config(path))
    return path.suffix == ".gguf" and is_eagle_config(GgufFile(path).metadata)


def open_eagle(path: Path) -> EagleFile:
    """The head in this file or folder. Raises MetadataError if its kind is not supported."""
    try:
        return _open_folder(path) if path.is_dir() else _open_gguf(path)
    except MetadataError as wrong:
        raise MetadataError(f"{path}: {wrong}") from None


def _open_folder(folder: Path) -> EagleFile:
    config = _config(folder)
    check_config(config)
    kind = config.get("speculators_model_type")
    if kind not in (None, EAGLE):
        raise MetadataError(f"its speculators_model_type is {kind!r}, where {EAGLE} is supported")
    layer: Json = need(config, "transformer_layer_config") if kind else config
    options: Json = {**config, **(config.get("eagle_config") or {})}
    if need(layer, "num_hidden_layers") != 1 or options.get("use_aux_hidden_state") is False:
        raise MetadataError("it is no head of one layer over three of the model's layers, as EAGLE-3 has it")
    kinds = layer.get("layer_types") or []
    metadata = {**layer, "model_type": EAGLE, "tie_word_embeddings": False, "layer_types": kinds[:1] or None}
    stored = {_as_layer(name): tensor for name, tensor in stored_tensors(folder).items()}
    return EagleFile(
        folder,
        HuggingFaceCheckpoint(metadata, collect_quantised(config, stored)),
        _layers(config),
        _verifier(config),
        layer.get("vocab_size"),
        bool(options.get("norm_before_residual")),
        bool(options.get("norm_output")),
    )


def _as_layer(name: str) -> str:
    """SpecForge calls the layer midlayer, speculators layers.0."""
    return f"layers.0.{name.removeprefix('midlayer.')}" if name.startswith("midlayer.") else name


def _layers(config: Json) -> tuple[int, ...] | None:
    """SpecForge numbers the layers after which features are taken, speculators those before which they are."""
    if ids := config.get("eagle_aux_hidden_state_layer_ids"):
        return tuple(ids)
    after = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return tuple(number + 1 for number in after) if after else None


def _verifier(config: Json) -> str:
    part = config.get("speculators_config")
    verifier = part.get("verifier") if isinstance(part, dict) else None
    return str(verifier.get("name_or_path") or "") if isinstance(verifier, dict) else ""


def _open_gguf(path: Path) -> EagleFile:
    file = GgufFile(path)
    metadata = file.metadata
    if metadata.get("general.architecture") != EAGLE:
        raise MetadataError("it is no EAGLE-3 head")
    layers = metadata.get(f"{EAGLE}.target_layers")
    return EagleFile(
        path,
        file,
        None if layers is None else tuple(map(int, layers)),
        "",
        len(metadata["tokenizer.ggml.tokens"]) if "tokenizer.ggml.tokens" in metadata else None,
        bool(metadata.get(f"{EAGLE}.norm_before_residual")),
        ids_are_offsets=False,
    )


def _config(folder: Path) -> Json:
    path = in_folder(folder, "config.json")
    return {} if path is None else read_json(path, MAX_CONFIG_BYTES)
