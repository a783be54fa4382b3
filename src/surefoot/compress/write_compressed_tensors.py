"""A Hugging Face folder in the compressed-tensors layout, which transformers and vLLM read.

Weights of up to 8 bits are packed into 32-bit words along the columns, zero points along the rows, lowest bits first;
each code counts from the lowest level. With 8-bit activations weights are int8 as they are (W8A8). What is not in
codes is kept in half precision, norms in float32.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.compress.arrays import save_arrays
from surefoot.compress.grids import IntFormat
from surefoot.compress.hf_config import make_config
from surefoot.compress.later import CompressError
from surefoot.compress.layer import Made, Quantised
from surefoot.models import ModelConfig, read_config
from surefoot.ops.arrays import F32, U8, Array
from surefoot.text import save_tokenizer, tokenizer_from_gguf
from surefoot.weights import Checkpoint, GgufFile
from surefoot.weights.huggingface import FAMILY_LAYER, LAYER, WHOLE

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text", "gemma2": "gemma2"}
ROWS = IntFormat(8, 0)  # int8 with one scale a row
BY_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True, "observer": None}


def write_compressed_tensors(
    checkpoint: Checkpoint, source: Path, tensors: Iterable[tuple[str, Made]], out: Path, activations_int8: bool = False
) -> None:
    """activations_int8: say that they are to be so, one scale a token, where matrices are int8 with one scale a row."""
    config = read_config(checkpoint)
    names = _hf_names(ARCHITECTURES[config.family])
    turned = isinstance(checkpoint, GgufFile) and config.layers[0].rope is not None
    turned = turned and config.layers[0].rope.pairing == "neighbours"  # type: ignore[union-attr]
    stored: dict[str, Array] = {}
    groups: dict[IntFormat, list[str]] = {}
    for name, made in tensors:
        stem, kind = _hf_name(names, name)
        if turned and name.split(".")[-2] in ("attn_q", "attn_k"):
            made = _halves(made, config, name)
        if isinstance(made, Quantised):
            if not isinstance(made.format, IntFormat):
                raise CompressError(f"{name}: compressed-tensors has no {made.format.name}")
            groups.setdefault(made.format, []).append(stem)
            parts = _plain(made) if activations_int8 and made.format == ROWS else _packed(made)
            stored |= {f"{stem}.{part}": array for part, array in parts.items()}
        else:
            offset = _norm_offset(checkpoint, config, stem)
            stored[f"{stem}.{kind}"] = (made - offset) if made.ndim == 1 else made.astype(np.float16)
    out.mkdir(parents=True, exist_ok=True)
    save_arrays(stored, out / "model.safetensors", {"format": "pt"})
    _save_rest(checkpoint, source, out, quantisation_config(groups, activations_int8))


def _norm_offset(checkpoint: Checkpoint, config: ModelConfig, stem: str) -> np.float32:
    """Gemma's norms are stored less one in Hugging Face's files, and whole in GGUF's."""
    gguf = isinstance(checkpoint, GgufFile) and config.family.startswith("gemma")
    return np.float32(1 if gguf and "norm" in stem else 0)


def _hf_names(model_type: str) -> dict[str, str]:
    """Hugging Face's names of a layer's parts, by GGUF's."""
    layer = {**LAYER, **FAMILY_LAYER.get(model_type, {})}
    # Of two names for one part, the first is the usual one.
    return {gguf: hf for hf, gguf in reversed(layer.items())}


def _hf_name(names: Mapping[str, str], name: str) -> tuple[str, str]:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("blk."):
        _, number, part = stem.split(".", 2)
        if part not in names:
            raise CompressError(f"{name} has no place in a Hugging Face folder")
        return f"model.layers.{number}.{names[part]}", kind
    whole = {gguf: hf for hf, gguf in WHOLE.items()}
    if stem not in whole:
        raise CompressError(f"{name} has no place in a Hugging Face folder")
    return ("lm_head" if stem == "output" else f"model.{whole[stem]}"), kind


def _halves(made: Made, config: ModelConfig, name: str) -> Made:
    """Rows of queries or keys in Hugging Face's order: lanes that turn together half a head apart, not neighbours."""
    kv = config.kv(0)
    heads = config.heads if "attn_q" in name else kv.heads
    lanes = np.arange(kv.key_dim).reshape(-1, 2).T.reshape(-1)
    order = (np.arange(heads)[:, None] * kv.key_dim + lanes).reshape(-1)
    if not isinstance(made, Quantised):
        reordered: F32 = made[order]
        return reordered
    grid = made.grid
    offsets = None if grid.offsets is None else grid.offsets[order]
    return Quantised(
        made.format, type(grid)(grid.levels, grid.group, grid.scales[order], offsets), made.codes[order]
    )  # fmt: skip


def _plain(made: Quantised) -> dict[str, Array]:
    codes = made.grid.levels.values[made.codes].astype(np.int8)
    return {"weight": codes, "weight_scale": made.grid.scales.astype(np.float16)}


def _packed(made: Quantised) -> dict[str, Array]:
    fmt, grid = made.format, made.grid
    assert isinstance(fmt, IntFormat)
    parts: dict[str, Array] = {
        "weight_packed": _words(made.codes + np.uint8(fmt.lowest + 2 ** (fmt.bits - 1)), fmt.bits),
        "weight_scale": grid.scales.astype(np.float16),
        "weight_shape": np.array(made.codes.shape, np.int64),
    }
    if grid.offsets is not None:
        half = 2 ** (fmt.bits - 1)
        zeros = np.rint(half - grid.offsets / grid.scales).astype(np.uint8)
        parts["weight_zero_point"] = np.ascontiguousarray(_words(np.ascontiguousarray(zeros.T), fmt.bits).T)
    return parts


def _words(codes: U8, bits: int) -> Array:
    """Along the last axis, one code after the other, lowest bits first, filled with zeros to whole words."""
    rows, columns = codes.shape
    each = np.unpackbits(codes[..., None], axis=-1, bitorder="little", count=bits).reshape(rows, -1)
    filled = np.zeros((rows, -(-columns * bits // 32) * 32), np.uint8)
    filled[:, : columns * bits] = each
    words: Array = np.packbits(filled, axis=-1, bitorder="little").view(np.int32)
    return words


def quantisation_config(groups: Mapping[IntFormat, list[str]], activations_int8: bool) -> dict[str, Any]:
    """Which matrices are in which format, by their names."""

    def layout(fmt: IntFormat) -> str:
        return "int-quantized" if activations_int8 and fmt == ROWS else "pack-quantized"

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
                "input_activations": BY_TOKEN if layout(fmt) == "int-quantized" else None,
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
    """config.json and the tokenizer: copied from a folder, made from a GGUF file's metadata."""
    if isinstance(checkpoint, GgufFile):
        config = make_config(checkpoint)
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
