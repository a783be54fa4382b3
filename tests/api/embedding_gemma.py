"""A tiny EmbeddingGemma, as a folder for sentence-transformers and as a GGUF file: random weights, tokens of bytes."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from surefoot.ops.arrays import F32
from surefoot.weights import HuggingFaceCheckpoint
from tests.api.pooled import MODULES, add_tokenizer, gguf, tokenizer, torch, transformers

WIDTH, WINDOW, CONTEXT = 96, 48, 1024
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": 160, "num_hidden_layers": 7, "num_attention_heads": 3, "head_dim": 32,
    "num_key_value_heads": 1, "max_position_embeddings": CONTEXT, "sliding_window": WINDOW, "pad_token_id": None,
    "query_pre_attn_scalar": 32, "use_bidirectional_attention": True,
}  # fmt: skip


@functools.cache
def reference() -> Any:
    """transformers' model in float32."""
    torch.manual_seed(7)
    size = tokenizer(appends_end=False).get_vocab_size()
    config = transformers.Gemma3TextConfig(vocab_size=size, **SIZES)
    config._attn_implementation = "eager"
    model = transformers.Gemma3TextModel(config).to(torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model


@functools.cache
def dense() -> tuple[F32, F32]:
    """The matrices after the pooling."""
    rng = np.random.default_rng(3)
    shapes = ((4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))
    first, second = (rng.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5) for shape in shapes)
    return first, second


def vector(tokens: Sequence[int]) -> Any:
    """What sentence-transformers makes of a text: mean, two matrices, length 1."""
    with torch.no_grad():
        states = reference()(torch.tensor([list(tokens)])).last_hidden_state[0].double().numpy()
    pooled = states.mean(0)
    for matrix in dense():
        pooled = matrix.astype(np.float64) @ pooled
    return pooled / np.linalg.norm(pooled)


def save(folder: Path) -> Path:
    reference().save_pretrained(folder)
    tokenizer(appends_end=True).save(str(folder / "tokenizer.json"))
    names = ("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    paths = [f"{number}_{name}" if number else "" for number, name in enumerate(names)]
    modules = [
        {"idx": i, "path": path, "type": MODULES + name}
        for i, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path, config in ((paths[1], {"pooling_mode_mean_tokens": True}), *((path, DENSE) for path in paths[2:4])):
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config))
    for path, matrix in zip(paths[2:4], dense(), strict=True):
        save_file({"linear.weight": matrix}, folder / path / "model.safetensors")
    return folder


DENSE = {"activation_function": "torch.nn.modules.linear.Identity", "bias": False}


def save_gguf(folder: Path) -> Path:
    """As llama.cpp converts it: 1 is added to the weights of norms."""
    checkpoint, path = HuggingFaceCheckpoint.open(save(folder / "source")), folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "gemma-embedding")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_context_length(CONTEXT)
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_key_length(SIZES["head_dim"])
    writer.add_value_length(SIZES["head_dim"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(WINDOW)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    add_tokenizer(writer, appends_end=True)
    for name in checkpoint.tensors:
        writer.add_tensor(name, checkpoint.floats(name) + np.float32(name.endswith("norm.weight")))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
