"""Families with states from GGUF files: the same bits as from a Hugging Face folder.

The files are written by the gguf package with llama.cpp's names, as its converter writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.models import load
from surefoot.ops import Backend
from surefoot.weights import GgufFile
from tests.models import tiny

gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[reference]'")
LENGTH = 100


def write(path: Path, architecture: str, config: Any, keys: dict[str, Any]) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
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
    for name, tensor in tiny.checkpoint(architecture).tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor.floats()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_lfm2(backend: Backend, tmp_path: Path) -> None:
    """Layers without heads of keys and values are convolutions."""
    config = tiny.reference("lfm2").config
    heads = [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]
    keys = {
        "attention.head_count_kv": heads, "shortconv.l_cache": config.conv_L_cache,
        "attention.layer_norm_rms_epsilon": config.norm_eps, "rope.freq_base": 1e6,
    }  # fmt: skip
    write(tmp_path / "lfm2.gguf", "lfm2", config, keys)
    models = load(backend, GgufFile(tmp_path / "lfm2.gguf")), tiny.make_model(backend, "lfm2")
    logits = [
        tiny.all_logits(tiny.make_runner(backend, model), tiny.tokens(LENGTH), [LENGTH]).tobytes() for model in models
    ]
    assert logits[0] == logits[1]


def test_counts_of_heads_must_fit_the_layers(backend: Backend, tmp_path: Path) -> None:
    config = tiny.reference("lfm2").config
    keys = {"attention.head_count_kv": [0, 2], "shortconv.l_cache": 3, "attention.layer_norm_rms_epsilon": 1e-5}
    write(tmp_path / "lfm2.gguf", "lfm2", config, keys)
    with pytest.raises(ValueError, match="2 counts of heads for 3 layers"):
        load(backend, GgufFile(tmp_path / "lfm2.gguf"))
