"""llama2.c's float32 models: unquantised weights, which show what rounding costs."""

from pathlib import Path

import numpy as np

from surefoot.ops.arrays import F32
from surefoot.weights import HuggingFaceCheckpoint
from tests.models.in_memory import InMemory

LAYER_PARTS = (  # in the file's order, each for all layers
    ("input_layernorm", "dim", None), ("self_attn.q_proj", "dim", "dim"), ("self_attn.k_proj", "kv", "dim"),
    ("self_attn.v_proj", "kv", "dim"), ("self_attn.o_proj", "dim", "dim"), ("post_attention_layernorm", "dim", None),
    ("mlp.gate_proj", "hidden", "dim"), ("mlp.down_proj", "dim", "hidden"), ("mlp.up_proj", "hidden", "dim"),
)  # fmt: skip


def read(path: Path) -> HuggingFaceCheckpoint:
    dim, hidden, layers, heads, kv_heads, vocab, context = (int(size) for size in np.fromfile(path, np.int32, 7))
    assert vocab > 0, "a head of its own is not read"
    values, at = np.fromfile(path, np.float32, offset=28), 0
    sizes = {"dim": dim, "kv": dim * kv_heads // heads, "hidden": hidden}
    tensors: dict[str, F32] = {}

    def take(*shape: int) -> F32:
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return values[at - count : at].reshape(shape)

    tensors["model.embed_tokens.weight"] = take(vocab, dim)
    for part, rows, columns in LAYER_PARTS:
        shape = (sizes[rows],) if columns is None else (sizes[rows], sizes[columns])
        for layer in range(layers):
            one = take(*shape)
            turned = part in ("self_attn.q_proj", "self_attn.k_proj")
            tensors[f"model.layers.{layer}.{part}.weight"] = halves(one, dim // heads) if turned else one
    tensors["model.norm.weight"] = take(dim)
    config = {
        "model_type": "llama", "vocab_size": vocab, "hidden_size": dim, "intermediate_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    }  # fmt: skip
    return HuggingFaceCheckpoint(config, {name: InMemory(np.ascontiguousarray(one)) for name, one in tensors.items()})


def halves(rows: F32, head_dim: int) -> F32:
    """A head's lanes that turn together are neighbours in the file, and half a head apart in Hugging Face's order."""
    lanes = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return lanes.swapaxes(1, 2).reshape(rows.shape)
