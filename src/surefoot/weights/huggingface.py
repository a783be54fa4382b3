"""Hugging Face checkpoints: a local folder's config.json and safetensors, under GGUF's tensor names."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from surefoot.formats import W8_GROUPED, round_to
from surefoot.ops.arrays import F32, Arena, Array
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat, pack
from surefoot.weights.safetensors import read_safetensors

PREFIXES = ("model.language_model.", "language_model.model.", "model.")
WHOLE = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
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
}
# Where a family's word means something else.
GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
FAMILY_LAYER = {
    "gemma2": GEMMA,
    "gemma3": GEMMA,
    "gemma3_text": GEMMA,
    "gpt_oss": {"post_attention_layernorm": "post_attention_norm"},
}
IN_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
ONE_EXPERT = re.compile(r"mlp\.experts\.(\d+)\.(gate|up|down)_proj")


class Stored(Protocol):
    """A tensor as the checkpoint has it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def floats(self) -> F32: ...


@dataclass(frozen=True)
class InMemory:
    array: F32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def floats(self) -> F32:
        return self.array


@dataclass(frozen=True)
class Derived:
    """A tensor made from stored ones when it is asked for."""

    shape: tuple[int, ...]
    make: Callable[[], Array]

    def floats(self) -> F32:
        return np.ascontiguousarray(self.make(), np.float32)


class HuggingFaceCheckpoint:
    """`metadata` is config.json (its text part, if the model sees more than text)."""

    def __init__(self, config: Mapping[str, Any], stored: Mapping[str, Stored]) -> None:
        self.metadata: Mapping[str, Any] = config.get("text_config", config)
        self.tensors: Mapping[str, Stored] = dict(_rename(self.metadata, stored))
        self._arena = Arena()

    @classmethod
    def open(cls, folder: Path) -> "HuggingFaceCheckpoint":
        """The checkpoint in a local folder, in one file or in shards."""
        config = json.loads((folder / "config.json").read_text())
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"{folder} holds no .safetensors file")
        return cls(config, {name: one for file in files for name, one in read_safetensors(file).items()})

    def floats(self, name: str) -> F32:
        return self.tensors[name].floats()

    def integers(self, name: str, float_format: WeightFormat = W8_GROUPED) -> IntegerWeights:
        return round_to(float_format, self.floats(name))

    def fused(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[PackedWeights]:
        return [self._pack(backend, [self.floats(name) for name in names], float_format)]

    def fused_experts(
        self, backend: Backend, names: Sequence[str], float_format: WeightFormat = W8_GROUPED
    ) -> list[list[PackedWeights]]:
        tensors = [self.floats(name) for name in names]
        return [[self._pack(backend, matrices, float_format) for matrices in zip(*tensors, strict=True)]]

    def _pack(self, backend: Backend, matrices: Sequence[F32], float_format: WeightFormat) -> PackedWeights:
        floats = matrices[0] if len(matrices) == 1 else np.concatenate(matrices)
        return pack(backend, round_to(float_format, floats), self._arena)


def _rename(config: Mapping[str, Any], stored: Mapping[str, Stored]) -> Iterator[tuple[str, Stored]]:
    layer_names = {**LAYER, **FAMILY_LAYER.get(config["model_type"], {})}
    lone_experts: dict[str, dict[int, Stored]] = {}
    for full_name, tensor in stored.items():
        prefix = next((prefix for prefix in PREFIXES if full_name.startswith(prefix)), "")
        name, kind = _split_kind(full_name.removeprefix(prefix))
        in_layer = IN_LAYER.fullmatch(name)
        if in_layer is None:
            if name in WHOLE and not (name == "lm_head" and config.get("tie_word_embeddings")):
                yield f"{WHOLE[name]}.{kind}", tensor
            continue
        block, part = f"blk.{in_layer[1]}", in_layer[2]
        if one := ONE_EXPERT.fullmatch(part):
            lone_experts.setdefault(f"{block}.ffn_{one[2]}_exps.{kind}", {})[int(one[1])] = tensor
        else:
            yield from _rename_part(config, layer_names, block, part, kind, tensor)
    for name, experts in lone_experts.items():
        yield name, _stacked([experts[i] for i in range(len(experts))])


def _split_kind(name: str) -> tuple[str, str]:
    """A name and whether it is a weight or a bias, which some names say with an underscore or not at all."""
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
        experts, k, n = tensor.shape
        yield f"{block}.ffn_down_exps.weight", Derived((experts, n, k), lambda: tensor.floats().swapaxes(1, 2))
    elif part == "self_attn.kv_b_proj":
        yield from _split_latent(config, block, tensor)
    elif part in names:
        yield f"{block}.{names[part]}.{kind}", tensor


def _stacked(tensors: list[Stored]) -> Derived:
    return Derived((len(tensors), *tensors[0].shape), lambda: np.stack([tensor.floats() for tensor in tensors]))


def _split_gate_up(
    block: str, kind: str, tensor: Stored, interleaved: bool, transposed: bool
) -> Iterator[tuple[str, Stored]]:
    """Experts' gates and ups from one tensor: one half after the other, or by turns."""
    outer, *inner = tensor.shape[:1] + tensor.shape[:0:-1] if transposed else tensor.shape
    half = inner[0] // 2
    for number, name in enumerate(("gate", "up")):
        part = slice(number, None, 2) if interleaved else slice(number * half, (number + 1) * half)

        def make(part: slice = part) -> Array:
            values = tensor.floats()
            return (values.swapaxes(1, 2) if transposed else values)[:, part]

        yield f"{block}.ffn_{name}_exps.{kind}", Derived((outer, half, *inner[1:]), make)


def _split_latent(config: Mapping[str, Any], block: str, tensor: Stored) -> Iterator[tuple[str, Stored]]:
    """Keys and values from the latent vector, by head; the keys' transposed, since they are applied to queries."""
    heads, rank = config["num_attention_heads"], tensor.shape[1]
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]

    def by_head() -> Array:
        return tensor.floats().reshape(heads, plain + value, rank)

    yield f"{block}.attn_k_b.weight", Derived((heads, rank, plain), lambda: by_head()[:, :plain].swapaxes(1, 2))
    yield f"{block}.attn_v_b.weight", Derived((heads, value, rank), lambda: by_head()[:, plain:])
