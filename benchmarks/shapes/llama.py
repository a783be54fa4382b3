"""Writes a model with random weights in the formats that surefoot and its peers read. Speed depends on shapes alone.

The folder is a Hugging Face folder in bf16. It also has the same weights as 8-bit integers for vLLM and as GGUF for
llama.cpp. Every token's text is plain letters, so that each token gives a text of its own in a stream.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes.safetensors_writer import BF16, F32, I8, TensorEntry, to_bf16, write_safetensors
from surefoot.bench.harness.progress import Say
from surefoot.bench.peers.install import cache_folder, install_venv, make_venv, run
from surefoot.bench.peers.model_forms import FORMS, GGUF, W8A8
from surefoot.ops.arrays import Array

GGUF_PACKAGE = "gguf==0.19.0"
GGUF_SCRIPT = Path(__file__).with_name("gguf_script.py")
DEVIATION = 0.02  # standard deviation of the weights
NUM_BYTES = 256


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a Llama model."""

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int = 8192

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's matrices."""
        kv = self.kv_heads * self.head_dim
        return {
            "self_attn.q_proj": (self.width, self.width), "self_attn.k_proj": (kv, self.width),
            "self_attn.v_proj": (kv, self.width), "self_attn.o_proj": (self.width, self.width),
            "mlp.gate_proj": (self.ffn, self.width), "mlp.up_proj": (self.ffn, self.width),
            "mlp.down_proj": (self.width, self.ffn),
        }  # fmt: skip

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": self.width,
            "intermediate_size": self.ffn, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": self.vocab,
            "max_position_embeddings": self.context, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
            "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16",
        }  # fmt: skip


M = LlamaShape("llama-1.2b-random", 16, 2048, 32, 8, 8192, 128256)
TINY = LlamaShape("llama-tiny-random", 2, 256, 4, 2, 512, 1024)
SHAPES = {"1.2b": M, "tiny": TINY}


def shape_folder(shape: LlamaShape) -> Path:
    return cache_folder().with_name("shapes") / shape.name


def make_shape(shape: LlamaShape, say: Say, folder: Path | None = None) -> Path:
    """The model's folder, written if it does not exist. The weights are always the same."""
    folder = folder or shape_folder(shape)
    if (folder / "ready").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    write_folder(shape, folder, say)
    say(f"{shape.name}: GGUF")
    home = install_venv(GGUF_PACKAGE, lambda home: make_venv(home, GGUF_PACKAGE))
    write_gguf(folder, home / "venv" / "bin" / "python")
    (folder / "ready").touch()
    return folder


def write_folder(shape: LlamaShape, folder: Path, say: Say) -> None:
    """Writes the folder in bf16, and inside it the folder with 8-bit weights."""
    int8 = folder / FORMS / W8A8
    int8.mkdir(parents=True)
    for target, config in ((folder, shape.config()), (int8, shape.config() | {"quantization_config": _w8a8()})):
        (target / "config.json").write_text(json.dumps(config, indent=2))
        _write_tokenizer(target, shape.vocab)
    say(f"{shape.name}: bf16 weights")
    write_safetensors(folder / "model.safetensors", _bf16_entries(shape))
    say(f"{shape.name}: 8-bit weights")
    write_safetensors(int8 / "model.safetensors", _int8_entries(shape))


Make = Callable[[], Array]


def _tensors(shape: LlamaShape) -> Iterator[tuple[str, tuple[int, ...], Make]]:
    """The name, size and a function that draws the float32 values, for each tensor."""
    ones = partial(np.ones, shape.width, np.float32)
    size: tuple[int, ...] = (shape.vocab, shape.width)
    yield "model.embed_tokens", size, partial(_random_values, 0, size)
    yield "model.norm", (shape.width,), ones
    for layer in range(shape.layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{layer}.{norm}", (shape.width,), ones
        for number, (name, size) in enumerate(shape.matrices.items(), 1):
            yield f"model.layers.{layer}.{name}", size, partial(_random_values, 16 * layer + number, size)


def _random_values(seed: int, size: tuple[int, ...]) -> Array:
    values = np.random.default_rng(seed).standard_normal(size, np.float32)
    values *= np.float32(DEVIATION)
    return values


def _bf16_entries(shape: LlamaShape) -> list[TensorEntry]:
    return [TensorEntry(f"{name}.weight", BF16, size, partial(_bf16, make)) for name, size, make in _tensors(shape)]


def _int8_entries(shape: LlamaShape) -> list[TensorEntry]:
    """The tensors, with the layers' matrices as 8-bit integers and one scale for each row."""
    entries = []
    for name, size, make in _tensors(shape):
        if name.endswith("_proj"):
            entries.append(TensorEntry(f"{name}.weight", I8, size, partial(_codes, make)))
            entries.append(TensorEntry(f"{name}.weight_scale", F32, (size[0], 1), partial(_scales, make)))
        else:
            entries.append(TensorEntry(f"{name}.weight", BF16, size, partial(_bf16, make)))
    return entries


def _bf16(make: Make) -> Array:
    return to_bf16(make())


def _scales(make: Make) -> Array:
    largest: Array = np.abs(make()).max(axis=1, keepdims=True)
    return largest / np.float32(127)


def _codes(make: Make) -> Array:
    return np.rint(make() / _scales(make)).astype(np.int8)


def _w8a8() -> dict[str, Any]:
    """The compressed-tensors configuration for 8-bit weights by row and 8-bit activations by token."""
    form = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": form | {"strategy": "channel", "dynamic": False},
        "input_activations": form | {"strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None,
        "global_compression_ratio": None,
    }  # fmt: skip


def vocabulary(size: int) -> list[str]:
    """A vocabulary of two control tokens, all bytes as byte-level tokenizers write them, one merge, and invented
    words."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(NUM_BYTES, 2 * NUM_BYTES))
    single = [chr(byte) if byte in printable else chr(next(others)) for byte in range(NUM_BYTES)]
    known = ["<|begin|>", "<|end|>", *single, "ab"]
    return known + [f"Ġword{number}" for number in range(len(known), size)]


def _write_tokenizer(folder: Path, size: int) -> None:
    words = vocabulary(size)
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "vocab": {word: number for number, word in enumerate(words)}, "merges": ["a b"],
    }  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": words[number], **special} for number in (0, 1)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": words[0], "eos_token": words[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_gguf(folder: Path, python: Path) -> None:
    """Converts the folder to GGUF. python: interpreter of a venv with the gguf package."""
    run(python, GGUF_SCRIPT, folder, folder / FORMS / GGUF)
