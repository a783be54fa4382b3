"""Reads Hugging Face checkpoints: a local folder's config.json and safetensors, with tensors under GGUF's names."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.core.model_files import MAX_CONFIG_BYTES, MAX_TEXT_BYTES, in_folder, read_json, read_json_objects
from surefoot.formats import W8_GROUPED, alike, round_to, row_integers, to_integers
from surefoot.ops.arrays import F32, Arena, Array
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat, empty_packed, pack, pack_rows
from surefoot.weights.adapters import no_adapter, with_adapter
from surefoot.weights.coded import Coded
from surefoot.weights.derived import Stacked, Stored
from surefoot.weights.gguf import GgufFile
from surefoot.weights.huggingface_names import renamed
from surefoot.weights.metadata import MetadataError, check_config, need
from surefoot.weights.quantised import collect_quantised
from surefoot.weights.readahead import map_ahead
from surefoot.weights.safetensors import SafetensorsError, StoredTensor, read_safetensors
from surefoot.weights.wrong_file import PICKLE_ADVICE

PANEL = 32  # rows that are packed together
PART_WEIGHTS = 1 << 18  # weights rounded at a time: a megabyte of floats, which stays in the CPU's cache

INDEX = "model.safetensors.index.json"
MAX_SHARDS = 1024  # files that are mapped at once
MAX_DENSE = 2  # matrices after the pooling
Piece = list[tuple[Stored, slice]]  # rows of tensors, to be stacked


class HuggingFaceCheckpoint:
    """A checkpoint of config.json and safetensors. `metadata` is config.json, or its text part if the model is
    multimodal."""

    def __init__(self, config: Mapping[str, Any], stored: Mapping[str, Stored]) -> None:
        check_config(config)
        self.metadata: Mapping[str, Any] = config.get("text_config") or config
        need(self.metadata, "model_type")
        self.tensors: Mapping[str, Stored] = dict(renamed(self.metadata, stored))
        self._arena = Arena()

    @classmethod
    def open(cls, folder: Path, adapter: str | None = None) -> "HuggingFaceCheckpoint":
        """The checkpoint in a local folder, in one file or in shards. Quantised checkpoints keep their codes. adapter:
        that of a task, added to the matrices."""
        config = _read_json(folder, "config.json", MAX_CONFIG_BYTES)
        if config is None:
            raise FileNotFoundError(f"{folder} has no config.json: give the folder of a Hugging Face model")
        try:
            check_config(config)
        except MetadataError as wrong:
            raise MetadataError(f"{folder / 'config.json'}: {wrong}") from None
        stored = with_adapter(config, collect_quantised(config, stored_tensors(folder)), adapter)
        return cls(config, {**stored, **_dense_matrices(folder)})

    def floats(self, name: str) -> F32:
        return self.tensors[name].floats()

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        tensor = self.tensors[name]
        with _naming(name):
            return to_integers(tensor.groups()) if isinstance(tensor, Coded) else _round(float_format, tensor.floats())

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        tensors = [self.tensors[name] for name in names]
        if any(isinstance(tensor, Coded) for tensor in tensors):
            matrices = [self.integers(name, float_format) for name in names]
            return [pack(backend, run, self._arena) for run in joined(matrices)]
        with _naming(", ".join(names)):
            return [self._pack_floats(backend, tensors, float_format)]

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[list[PackedWeights]]:
        with _naming(", ".join(names)):
            by_name = [self._experts(name, float_format) for name in names]
        runs = [joined(list(expert)) for expert in zip(*by_name, strict=True)]
        return [[pack(backend, expert, self._arena) for expert in run] for run in zip(*runs, strict=True)]

    def _experts(self, name: str, float_format: WeightFormat) -> list[IntegerWeights]:
        """One matrix per expert, all in the same format."""
        tensor = self.tensors[name]
        coded = [part for part in tensor.parts if isinstance(part, Coded)] if isinstance(tensor, Stacked) else []
        if len(coded) < tensor.shape[0]:
            return [_round(float_format, tensor.floats(slice(e, e + 1))[0]) for e in range(tensor.shape[0])]
        experts = [part.groups() for part in coded]
        narrow = [to_integers(groups) for groups in experts]
        if len({_kind(weights) for weights in narrow}) == 1:
            return narrow
        return [row_integers(groups) for groups in alike(experts)]

    def _pack_floats(self, backend: Backend, tensors: Sequence[Stored], float_format: WeightFormat) -> PackedWeights:
        """The tensors stacked and packed in parts of whole panels: little memory beyond the packed bytes."""
        n, k, packed, at = sum(tensor.shape[0] for tensor in tensors), tensors[0].shape[1], None, 0
        pieces = _pieces(tensors, max(PANEL, PART_WEIGHTS // k // PANEL * PANEL))
        for weights in map_ahead(lambda piece: _round(float_format, _joined(piece)), pieces, backend.threads):
            packed = packed or empty_packed(backend, weights.format, n, k, weights.offsets is not None, self._arena)
            pack_rows(backend, weights, packed, at)
            at += weights.shape[0]
        assert packed is not None
        return packed


def _pieces(tensors: Sequence[Stored], num_rows: int) -> Iterator[Piece]:
    """The rows of all tensors in pieces of `num_rows` (the last may be smaller). A piece may span several tensors."""
    piece, missing = Piece(), num_rows
    for tensor in tensors:
        start, rows = 0, tensor.shape[0]
        while start < rows:
            stop = min(start + missing, rows)
            piece.append((tensor, slice(start, stop)))
            start, missing = stop, missing - (stop - start)
            if not missing:
                yield piece
                piece, missing = Piece(), num_rows
    if piece:
        yield piece


def _joined(piece: Piece) -> F32:
    floats = [tensor.floats(rows) for tensor, rows in piece]
    return floats[0] if len(floats) == 1 else np.concatenate(floats)


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of a folder's safetensors files, by their names there."""
    return {name: tensor for file in _files(folder) for name, tensor in read_safetensors(file).items()}


def _files(folder: Path) -> list[Path]:
    """The files in the index, because the folder may have copies for other programs. Without an index, all files."""
    index = _read_json(folder, INDEX, MAX_TEXT_BYTES)
    names = sorted(file.name for file in folder.glob("*.safetensors")) if index is None else _shard_names(index)
    if len(names) > MAX_SHARDS:
        raise SafetensorsError(f"{folder} has {len(names)} .safetensors files, where {MAX_SHARDS} are allowed")
    if not names:
        raise FileNotFoundError(f"{folder} has no .safetensors file: {_advice(folder)}")
    files = {name: in_folder(folder, name) for name in names}
    if missing := [name for name, file in files.items() if file is None]:
        raise SafetensorsError(f"{folder} lacks {missing[0]}, which {INDEX} names: fetch it")
    return [file for file in files.values() if file is not None]


def _dense_matrices(folder: Path) -> dict[str, StoredTensor]:
    """Matrices of sentence-transformers' modules that follow the pooling, by llama.cpp's names: dense_2, dense_3."""
    listed = in_folder(folder, "modules.json")
    modules = read_json_objects(listed, MAX_CONFIG_BYTES) if listed is not None else []
    paths = [str(module.get("path")) for module in modules if str(module.get("type")).endswith(".Dense")]
    files = [in_folder(folder, f"{path}/model.safetensors") for path in paths if Path(path).name == path]
    if len(paths) > MAX_DENSE or len(files) < len(paths) or None in files:
        raise SafetensorsError(f"{folder} lacks a file of its {len(paths)} dense modules, or has more than {MAX_DENSE}")
    matrices: dict[str, StoredTensor] = {}
    for number, file in enumerate(filter(None, files), 2):
        tensors = read_safetensors(file)
        if tensors.keys() != {"linear.weight"}:
            raise SafetensorsError(f"{file} has {', '.join(sorted(tensors))}: linear.weight alone is supported")
        matrices[f"dense_{number}.weight"] = tensors["linear.weight"]
    return matrices


def _read_json(folder: Path, name: str, max_bytes: int) -> dict[str, Any] | None:
    path = in_folder(folder, name)
    return None if path is None else read_json(path, max_bytes)


def _shard_names(index: Mapping[str, Any]) -> list[str]:
    files = index.get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise SafetensorsError(f"{INDEX} has no weight_map of tensors' files: fetch it again")
    names = sorted(set(files.values()))
    if outside := [name for name in names if Path(name).name != name]:
        raise SafetensorsError(f"{INDEX} names files outside the folder: {outside[0]}")
    return names


def _advice(folder: Path) -> str:
    if any(folder.glob("*.bin")):
        return f"its .bin is a pickle, {PICKLE_ADVICE}"
    return "fetch the model's safetensors, or give a GGUF file"


@contextmanager
def _naming(names: str) -> Iterator[None]:
    """Adds the tensors' names to an error."""
    try:
        yield
    except (ValueError, KeyError) as wrong:
        raise SafetensorsError(f"{names}: {wrong}; fetch the checkpoint again, or take another") from None


def _round(fmt: WeightFormat, weights: F32) -> IntegerWeights:
    if not np.isfinite(weights).all():
        raise ValueError("weights are infinite or not a number")
    return round_to(fmt, weights)


def _kind(weights: IntegerWeights) -> tuple[WeightFormat, bool, bytes]:
    """Properties that matrices must share to be packed as one."""
    table = b"" if weights.table is None else weights.table.tobytes()
    return weights.format, weights.offsets is not None, table


def joined(matrices: Sequence[IntegerWeights]) -> list[IntegerWeights]:
    """The matrices, with neighbours of the same kind stacked into one."""
    runs = [list(run) for _, run in itertools.groupby(matrices, _kind)]
    return [run[0] if len(run) == 1 else _stacked(run) for run in runs]


def _stacked(run: Sequence[IntegerWeights]) -> IntegerWeights:
    def stacked(arrays: Sequence[Array | None]) -> Any:
        return None if arrays[0] is None else np.concatenate([array for array in arrays if array is not None])

    return replace(
        run[0],
        codes=stacked([matrix.codes for matrix in run]),
        row_scales=stacked([matrix.row_scales for matrix in run]),
        scales=stacked([matrix.scales for matrix in run]),
        offsets=stacked([matrix.offsets for matrix in run]),
    )


def open_checkpoint(path: Path, adapter: str | None = None) -> GgufFile | HuggingFaceCheckpoint:
    """adapter: that of a task, which a folder may have (see `with_adapter`)."""
    if path.is_dir():
        return HuggingFaceCheckpoint.open(path, adapter)
    if adapter is not None:
        raise ValueError(no_adapter(adapter))
    return GgufFile(path)
