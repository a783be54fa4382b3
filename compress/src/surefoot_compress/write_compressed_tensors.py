"""Writes a Hugging Face folder in the compressed-tensors layout, which transformers and vLLM read.

Weights of up to 8 bits are packed into 32-bit words along the columns, zero points along the rows, lowest bits first;
codes count from the lowest level. With 8-bit activations (W8A8) weights are stored as plain int8. Matrices that are not
quantised are stored in half precision, norms in float32.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.models import ModelConfig, read_config
from surefoot.ops.arrays import F32, U8, Array
from surefoot.text import tokenizer_from_gguf
from surefoot.weights import Checkpoint, GgufFile
from surefoot.weights.huggingface_names import FAMILY_LAYER, LAYER, WHOLE
from surefoot_compress.arrays import save_arrays
from surefoot_compress.errors import CompressError
from surefoot_compress.grids import IntFormat
from surefoot_compress.layer import CompressedTensor, Quantised
from surefoot_compress.make_hf_config import make_hf_config
from surefoot_compress.save_tokenizer import save_tokenizer

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text", "gemma2": "gemma2"}
INT8_ROWS = IntFormat(8, 0)  # int8 with one scale per row
PER_TOKEN = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "strategy": "token",
    "dynamic": True,
    "observer": None,
}


def write_compressed_tensors(
    checkpoint: Checkpoint,
    source: Path,
    tensors: Iterable[tuple[str, CompressedTensor]],
    out: Path,
    activations_int8: bool = False,
) -> None:
    """With `activations_int8` the folder asks readers for int8 activations, one scale per token, wherever matrices are
    int8 with one scale per row."""
    config = read_config(checkpoint)
    names = _hf_names(ARCHITECTURES[config.family])
    interleaved = isinstance(checkpoint, GgufFile) and config.layers[0].rope is not None
    interleaved = interleaved and config.layers[0].rope.pairing == "neighbours"  # type: ignore[union-attr]
    stored: dict[str, Array] = {}
    groups: dict[IntFormat, list[str]] = {}
    for name, tensor in tensors:
        stem, kind = _hf_name(names, name)
        if interleaved and name.split(".")[-2] in ("attn_q", "attn_k"):
            tensor = _halves(tensor, config, name)
        if isinstance(tensor, Quantised):
            if not isinstance(tensor.format, IntFormat):
                raise CompressError(f"{name}: compressed-tensors has no format {tensor.format.name}")
            groups.setdefault(tensor.format, []).append(stem)
            parts = _plain(tensor) if activations_int8 and tensor.format == INT8_ROWS else _packed(tensor)
            stored |= {f"{stem}.{part}": array for part, array in parts.items()}
        else:
            offset = _norm_offset(checkpoint, config, stem)
            stored[f"{stem}.{kind}"] = (tensor - offset) if tensor.ndim == 1 else tensor.astype(np.float16)
    out.mkdir(parents=True, exist_ok=True)
    save_arrays(stored, out / "model.safetensors", {"format": "pt"})
    _save_rest(checkpoint, source, out, quantisation_config(groups, activations_int8))


def _norm_offset(checkpoint: Checkpoint, config: ModelConfig, stem: str) -> np.float32:
    """Gemma's norm weights are stored minus one in Hugging Face's files, and as they are in GGUF's."""
    gguf = isinstance(checkpoint, GgufFile) and config.family.startswith("gemma")
    return np.float32(1 if gguf and "norm" in stem else 0)


def _hf_names(model_type: str) -> dict[str, str]:
    """Hugging Face's names of a layer's modules, by GGUF's."""
    layer = {**LAYER, **FAMILY_LAYER.get(model_type, {})}
    # Where a module has two names, the first is the usual one.
    return {gguf: hf for hf, gguf in reversed(layer.items())}


def _hf_name(names: Mapping[str, str], name: str) -> tuple[str, str]:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("blk."):
        _, number, part = stem.split(".", 2)
        if part not in names:
            raise CompressError(f"{name} has no name in a Hugging Face folder: choose --output gguf")
        return f"model.layers.{number}.{names[part]}", kind
    whole = {gguf: hf for hf, gguf in WHOLE.items()}
    if stem not in whole:
        raise CompressError(f"{name} has no name in a Hugging Face folder: choose --output gguf")
    return ("lm_head" if stem == "output" else f"model.{whole[stem]}"), kind


def _halves(tensor: CompressedTensor, config: ModelConfig, name: str) -> CompressedTensor:
    """Rows of queries or keys in Hugging Face's order: lanes that rotate together are half a head apart, not
    adjacent."""
    kv = config.kv(0)
    heads = config.heads if "attn_q" in name else kv.heads
    lanes = np.arange(kv.key_dim).reshape(-1, 2).T.reshape(-1)
    order = (np.arange(heads)[:, None] * kv.key_dim + lanes).reshape(-1)
    if not isinstance(tensor, Quantised):
        reordered: F32 = tensor[order]
        return reordered
    grid = tensor.grid
    offsets = None if grid.offsets is None else grid.offsets[order]
    return Quantised(
        tensor.format, type(grid)(grid.levels, grid.group, grid.scales[order], offsets), tensor.codes[order]
    )  # fmt: skip


def _plain(matrix: Quantised) -> dict[str, Array]:
    codes = matrix.grid.levels.values[matrix.codes].astype(np.int8)
    return {"weight": codes, "weight_scale": matrix.grid.scales.astype(np.float16)}


def _packed(matrix: Quantised) -> dict[str, Array]:
    fmt, grid = matrix.format, matrix.grid
    assert isinstance(fmt, IntFormat)
    parts: dict[str, Array] = {
        "weight_packed": _words(matrix.codes + np.uint8(fmt.lowest + 2 ** (fmt.bits - 1)), fmt.bits),
        "weight_scale": grid.scales.astype(np.float16),
        "weight_shape": np.array(matrix.codes.shape, np.int64),
    }
    if grid.offsets is not None:
        half = 2 ** (fmt.bits - 1)
        zeros = np.rint(half - grid.offsets / grid.scales).astype(np.uint8)
        parts["weight_zero_point"] = np.ascontiguousarray(_words(np.ascontiguousarray(zeros.T), fmt.bits).T)
    return parts


def _words(codes: U8, bits: int) -> Array:
    """32-bit words of codes packed along the last axis, lowest bits first, padded with zeros to whole words."""
    rows, columns = codes.shape
    each = np.unpackbits(codes[..., None], axis=-1, bitorder="little", count=bits).reshape(rows, -1)
    filled = np.zeros((rows, -(-columns * bits // 32) * 32), np.uint8)
    filled[:, : columns * bits] = each
    words: Array = np.packbits(filled, axis=-1, bitorder="little").view(np.int32)
    return words


def quantisation_config(groups: Mapping[IntFormat, list[str]], activations_int8: bool) -> dict[str, Any]:
    """The quantization_config of config.json: which matrices are in which format."""

    def layout(fmt: IntFormat) -> str:
        return "int-quantized" if activations_int8 and fmt == INT8_ROWS else "pack-quantized"

    layouts = {layout(fmt) for fmt in groups}
    return {
        "quant_method": "compressed-tensors",
        "format": layouts.pop() if len(layouts) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "kv_cache_scheme": None,
        "ignore": ["lm_head"],
        "config_groups": {
            f"group_{number}": {
                "targets": sorted(stems) if len(groups) > 1 else ["Linear"],
                "weights": _scheme(fmt),
                "input_activations": PER_TOKEN if layout(fmt) == "int-quantized" else None,
                "output_activations": None,
                "format": layout(fmt),
            }
            for number, (fmt, stems) in enumerate(groups.items())
        },
    }


def _scheme(fmt: IntFormat) -> dict[str, Any]:
    return {
        "num_bits": fmt.bits,
        "type": "int",
        "symmetric": fmt.symmetric,
        "strategy": "group" if fmt.group else "channel",
        "group_size": fmt.group or None,
        "dynamic": False,
        "observer": "minmax",
    }


def _save_rest(checkpoint: Checkpoint, source: Path, out: Path, quantisation: Mapping[str, Any]) -> None:
    """Writes config.json and the tokenizer: copied from a source folder, or made from a GGUF file's metadata."""
    if isinstance(checkpoint, GgufFile):
        config = make_hf_config(checkpoint)
        template = checkpoint.metadata.get("tokenizer.chat_template")
        save_tokenizer(tokenizer_from_gguf(checkpoint.metadata), out, template)
    else:
        config = json.loads((source / "config.json").read_text())
        for file in source.iterdir():
            if file.suffix in (".json", ".model", ".jinja") and file.name not in (
                "config.json", "model.safetensors.index.json",
            ):  # fmt: skip
                shutil.copy(file, out / file.name)
    config["quantization_config"] = quantisation
    (out / "config.json").write_text(json.dumps(config, indent=2))
