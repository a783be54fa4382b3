"""Reads Hugging Face checkpoints: a local folder's config.json and safetensors, with tensors under GGUF's names."""

import itertools
import re
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
from surefoot.weights.coded import Coded
from surefoot.weights.derived import Derived, Stacked, Stored
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
PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "backbone.")
WHOLE = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "embedding_norm": "token_embd_norm",
    "lm_head": "output",
    "score": "cls.output",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "dense_2": "dense_2",
    "dense_3": "dense_3",
}
FAMILY_WHOLE = {"nemotron_h": {"embeddings": "token_embd", "norm_f": "output_norm"}}
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
# Names that differ between families.
GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
DELTA = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_qkvz": "ssm_in",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.A_log": "ssm_a_log",
    "linear_attn.dt": "ssm_dt",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
GEMMA4 = {
    **GEMMA,
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps",
    "experts.down_proj": "ffn_down_exps",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "layer_scalar": "layer_output_scale",
}
MAMBA2 = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "dt": "ssm_dt",
    "A_log": "ssm_a_log",
    "D": "ssm_d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
GRANITE_HYBRID = {
    **{f"mamba.{part}": name for part, name in MAMBA2.items()},
    "shared_mlp.input_linear": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
    "block_sparse_moe.router": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps",
}
GRANITE_DENSE = {"shared_mlp.input_linear": "ffn_up", "shared_mlp.output_linear": "ffn_down"}
NEMOTRON_H = {
    **{f"mixer.{part}": name for part, name in MAMBA2.items()},
    "norm": "attn_norm",
    "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k",
    "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp",
    "mixer.gate.e_score_correction": "exp_probs_b",
    "mixer.experts.up_proj": "ffn_up_exps",
    "mixer.experts.down_proj": "ffn_down_exps",
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
}
LFM2 = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.expert": "exp_probs_b",
    "feed_forward.experts.gate_up_proj": "ffn_gate_up_exps",
    "feed_forward.experts.down_proj": "ffn_down_exps",
}
# The layer that drafts: its own parts, beside those of any layer. It comes after the model's layers.
MTP = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head_norm",
    "embed_tokens": "embed_tokens",
    "lm_head": "shared_head_head",
}
MTP_FAMILIES = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next")
AFTER_ATTENTION = {"post_attention_layernorm": "post_attention_norm"}
FAMILY_LAYER = {
    "gemma2": GEMMA,
    "gemma3": GEMMA,
    "gemma3_text": GEMMA,
    "qwen3_5": DELTA,
    "qwen3_5_text": DELTA,
    "qwen3_5_moe": DELTA,
    "qwen3_5_moe_text": DELTA,
    "qwen3_next": DELTA,
    "lfm2": LFM2,
    "lfm2_moe": LFM2,
    "granitemoehybrid": GRANITE_HYBRID,
    "nemotron_h": NEMOTRON_H,
    "gemma4": GEMMA4,
    "gemma4_text": GEMMA4,
    "olmo2": GEMMA,
    "olmo3": GEMMA,
    "exaone4": GEMMA,
    "gpt_oss": AFTER_ATTENTION,
    "seed_oss": AFTER_ATTENTION,
}
CONVOLUTIONS = ("conv.conv", "linear_attn.conv1d", "mamba.conv1d", "mixer.conv1d")  # [columns, 1, taps]
IN_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
ONE_EXPERT = re.compile(r"(?:mlp|mixer|feed_forward)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)")
EXPERT_PARTS = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}


class HuggingFaceCheckpoint:
    """A checkpoint of config.json and safetensors. `metadata` is config.json, or its text part if the model is
    multimodal."""

    def __init__(self, config: Mapping[str, Any], stored: Mapping[str, Stored]) -> None:
        check_config(config)
        self.metadata: Mapping[str, Any] = config.get("text_config") or config
        need(self.metadata, "model_type")
        self.tensors: Mapping[str, Stored] = dict(_rename(self.metadata, stored))
        self._arena = Arena()

    @classmethod
    def open(cls, folder: Path) -> "HuggingFaceCheckpoint":
        """The checkpoint in a local folder, in one file or in shards. Quantised checkpoints keep their codes."""
        config = _read_json(folder, "config.json", MAX_CONFIG_BYTES)
        if config is None:
            raise FileNotFoundError(f"{folder} has no config.json: give the folder of a Hugging Face model")
        try:
            check_config(config)
        except MetadataError as wrong:
            raise MetadataError(f"{folder / 'config.json'}: {wrong}") from None
        stored = {name: tensor for file in _files(folder) for name, tensor in read_safetensors(file).items()}
        return cls(config, {**collect_quantised(config, stored), **_dense_matrices(folder)})

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
            packed = packed or empty_packed(weights.format, n, k, weights.offsets is not None, self._arena)
            pack_rows(backend, weights, packed, at)
            at += weights.shape[0]
        assert packed is not None
        return packed


Piece = list[tuple[Stored, slice]]  # rows of tensors, to be stacked


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


def _rename(config: Mapping[str, Any], stored: Mapping[str, Stored]) -> Iterator[tuple[str, Stored]]:
    layer_names = _layer_names(config)
    whole = {**WHOLE, **FAMILY_WHOLE.get(config.get("model_type", ""), {})}
    separate: dict[str, dict[int, Stored]] = {}
    for full_name, tensor in stored.items():
        prefix = next((prefix for prefix in PREFIXES if full_name.startswith(prefix)), "")
        name, kind = _split_kind(full_name.removeprefix(prefix))
        if name.startswith("mtp.") and config["model_type"] in MTP_FAMILIES:
            name = _mtp_name(need(config, "num_hidden_layers"), name.removeprefix("mtp."))
        in_layer = IN_LAYER.fullmatch(name)
        if in_layer is None:
            if name in whole and not (name == "lm_head" and config.get("tie_word_embeddings")):
                yield f"{whole[name]}.{kind}", tensor
            continue
        block, part = f"blk.{in_layer[1]}", in_layer[2]
        if expert := ONE_EXPERT.fullmatch(part):
            separate.setdefault(f"{block}.ffn_{EXPERT_PARTS[expert[2]]}_exps.{kind}", {})[int(expert[1])] = tensor
        else:
            yield from _rename_part(config, layer_names, block, part, kind, tensor)
    for name, experts in separate.items():
        if missing := set(range(len(experts))) - experts.keys():
            raise SafetensorsError(f"{name}: expert {min(missing)} is missing; fetch the checkpoint again")
        if len({expert.shape for expert in experts.values()}) != 1:
            raise SafetensorsError(f"{name}: the experts differ in shape; fetch the checkpoint again")
        yield name, Stacked([experts[i] for i in range(len(experts))])


def _mtp_name(num_layers: int, name: str) -> str:
    """The name of the drafting layer's part as if it were the layer after the last."""
    in_layer = IN_LAYER.fullmatch(name)
    return f"layers.{num_layers + int(in_layer[1])}.{in_layer[2]}" if in_layer else f"layers.{num_layers}.mtp.{name}"


def _layer_names(config: Mapping[str, Any]) -> Mapping[str, str]:
    kind = config["model_type"]
    dense = GRANITE_DENSE if kind == "granitemoehybrid" and not config.get("num_local_experts") else {}
    mtp = {f"mtp.{part}": f"nextn.{name}" for part, name in MTP.items()}
    return {**LAYER, **FAMILY_LAYER.get(kind, {}), **dense, **mtp}


def _split_kind(name: str) -> tuple[str, str]:
    """The name of the module, and "weight" or "bias". Some names end in "_bias", or have neither."""
    if name.endswith("_bias"):
        return name.removesuffix("_bias"), "bias"
    stem, dot, last = name.rpartition(".")
    return (stem, last) if dot and last in ("weight", "bias") else (name, "weight")


def _rename_part(
    config: Mapping[str, Any], names: Mapping[str, str], block: str, part: str, kind: str, tensor: Stored
) -> Iterator[tuple[str, Stored]]:
    transposed = config["model_type"] == "gpt_oss" and kind == "weight"  # its experts are [columns, rows]
    if part == "mlp.experts.gate_up_proj":
        yield from _split_gate_up(block, kind, tensor, config["model_type"] == "gpt_oss", transposed)
    elif part == "mlp.experts.down_proj" and transposed:
        experts, k, n = _three(tensor, part)
        yield f"{block}.ffn_down_exps.weight", Derived((experts, n, k), lambda: tensor.floats().swapaxes(1, 2))
    elif part == "self_attn.kv_b_proj":
        yield from _split_latent(config, block, tensor)
    elif part in CONVOLUTIONS and part in names and kind == "weight":
        columns, _, taps = _three(tensor, part)
        yield f"{block}.{names[part]}.weight", Derived((columns, taps), lambda: tensor.floats().reshape(columns, taps))
    elif part in names:
        name = names[part]
        yield f"{block}.{name}" if name.endswith(".scale") else f"{block}.{name}.{kind}", tensor


def _three(tensor: Stored, name: str) -> tuple[int, int, int]:
    if len(tensor.shape) != 3:
        raise SafetensorsError(f"{name} has shape {tensor.shape}, not three dimensions")
    outer, rows, columns = tensor.shape
    return outer, rows, columns


def _split_gate_up(
    block: str, kind: str, tensor: Stored, interleaved: bool, transposed: bool
) -> Iterator[tuple[str, Stored]]:
    """The experts' gate and up matrices from one tensor, where they are two halves or interleaved."""
    if len(tensor.shape) != (3 if kind == "weight" else 2):
        raise SafetensorsError(f"{block}: the experts' gate_up_proj has shape {tensor.shape}")
    outer, *inner = tensor.shape[:1] + tensor.shape[:0:-1] if transposed else tensor.shape
    half = inner[0] // 2
    for number, name in enumerate(("gate", "up")):
        part = slice(number, None, 2) if interleaved else slice(number * half, (number + 1) * half)

        def make(part: slice = part) -> Array:
            values = tensor.floats()
            return (values.swapaxes(1, 2) if transposed else values)[:, part]

        yield f"{block}.ffn_{name}_exps.{kind}", Derived((outer, half, *inner[1:]), make)


def _split_latent(config: Mapping[str, Any], block: str, tensor: Stored) -> Iterator[tuple[str, Stored]]:
    """The matrices that project the latent vector to a head's keys and values. The keys' matrix is transposed, because
    it is applied to queries."""
    heads, plain, value = (need(config, key) for key in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
    if len(tensor.shape) != 2 or tensor.shape[0] != heads * (plain + value):
        raise SafetensorsError(f"{block}: kv_b_proj has shape {tensor.shape}, unlike {heads} heads of {plain + value}")
    rank = tensor.shape[1]

    def by_head() -> Array:
        return tensor.floats().reshape(heads, plain + value, rank)

    yield f"{block}.attn_k_b.weight", Derived((heads, rank, plain), lambda: by_head()[:, :plain].swapaxes(1, 2))
    yield f"{block}.attn_v_b.weight", Derived((heads, value, rank), lambda: by_head()[:, plain:])
