"""Families with states from GGUF files: the same bits as from a Hugging Face folder.

The files are written by the gguf package with llama.cpp's names, as its converter writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.formats import FLOAT32
from surefoot.models import Model, load
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.weights import GgufFile
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models import tiny

gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[reference]'")
LENGTH = 100


def write(path: Path, architecture: str, config: Any, keys: dict[str, Any], tensors: dict[str, F32]) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    if "block_count" not in keys:
        writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    for key, value in keys.items():
        name = f"{architecture}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors_of(name: str) -> dict[str, F32]:
    return {key: tensor.floats() for key, tensor in tiny.checkpoint(name).tensors.items()}


def logits(backend: Backend, model: Model) -> F32:
    return tiny.all_logits(tiny.make_runner(backend, model), tiny.tokens(LENGTH), [LENGTH])


def test_lfm2(backend: Backend, tmp_path: Path) -> None:
    """Layers without heads of keys and values are convolutions."""
    config = tiny.reference("lfm2").config
    heads = [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]
    keys = {
        "attention.head_count_kv": heads, "shortconv.l_cache": config.conv_L_cache,
        "attention.layer_norm_rms_epsilon": config.norm_eps, "rope.freq_base": 1e6,
    }  # fmt: skip
    write(tmp_path / "lfm2.gguf", "lfm2", config, keys, tensors_of("lfm2"))
    got = logits(backend, load(backend, GgufFile(tmp_path / "lfm2.gguf")))
    assert got.tobytes() == logits(backend, tiny.make_model(backend, "lfm2")).tobytes()


def test_counts_of_heads_must_fit_the_layers(backend: Backend, tmp_path: Path) -> None:
    config = tiny.reference("lfm2").config
    keys = {"attention.head_count_kv": [0, 2], "shortconv.l_cache": 3, "attention.layer_norm_rms_epsilon": 1e-5}
    write(tmp_path / "lfm2.gguf", "lfm2", config, keys, tensors_of("lfm2"))
    with pytest.raises(ValueError, match="2 counts of heads for 3 layers"):
        load(backend, GgufFile(tmp_path / "lfm2.gguf"))


def tiled(values: F32, key_heads: int, heads: int, axis: int = 0) -> F32:
    """Heads of values in llama.cpp's order: the first of each key head, then the second of each."""
    order = np.arange(heads).reshape(key_heads, -1).T.ravel()
    parts = np.split(values, heads, axis)
    return np.concatenate([parts[head] for head in order], axis)


def as_converted(config: Any, checkpoint: HuggingFaceCheckpoint) -> dict[str, F32]:
    """What llama.cpp's converter makes of Qwen 3.5's tensors."""
    key_heads, heads = config.linear_num_key_heads, config.linear_num_value_heads
    keys = 2 * key_heads * config.linear_key_head_dim
    converted: dict[str, F32] = {}
    for name, tensor in checkpoint.tensors.items():
        values = tensor.floats()
        part = name.split(".", 2)[-1]
        if part in ("attn_qkv.weight", "ssm_conv1d.weight"):
            values = np.concatenate([values[:keys], tiled(values[keys:], key_heads, heads)])
        elif part in ("attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight", "ssm_dt.bias"):
            values = tiled(values, key_heads, heads)
        elif part == "ssm_out.weight":
            values = tiled(values, key_heads, heads, axis=1)
        elif part == "ssm_a_log.weight":
            name, values = name.replace("ssm_a_log.weight", "ssm_a"), -np.exp(tiled(values, key_heads, heads))
        elif name.endswith("norm.weight") and "ssm_norm" not in name:
            values = values + np.float32(1)
        converted[name] = values
    return converted


def qwen3_5_keys(config: Any) -> dict[str, Any]:
    return {
        "attention.head_count_kv": config.num_key_value_heads, "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim, "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": 1e6, "rope.dimension_count": config.head_dim // 4,
        "ssm.conv_kernel": config.linear_conv_kernel_dim, "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads, "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
    }  # fmt: skip


def test_qwen3_5(backend: Backend, tmp_path: Path) -> None:
    """In float32, since another order of heads has other groups of codes."""
    config, checkpoint = tiny.reference("qwen3_5").config, tiny.checkpoint("qwen3_5")
    write(tmp_path / "qwen35.gguf", "qwen35", config, qwen3_5_keys(config), as_converted(config, checkpoint))
    got = logits(backend, load(backend, GgufFile(tmp_path / "qwen35.gguf"), FLOAT32))
    want = logits(backend, load(backend, checkpoint, FLOAT32))
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
