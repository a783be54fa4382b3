"""Converts a Hugging Face folder of a Llama in bf16 to a GGUF file in Q8_0. Runs in a venv with the gguf package.

python gguf_script.py FOLDER FILE
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
TOPS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
NORMAL, CONTROL = 1, 3

Array = np.ndarray[Any, Any]


def read(path: Path) -> dict[str, Array]:
    """Views of the file's bf16 values, as 16-bit integers."""
    data = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + size].tobytes())
    return {
        name: data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
        .view(np.uint16)
        .reshape(entry["shape"])
        for name, entry in header.items()
    }


def gguf_name(name: str) -> str:
    name = name.removesuffix(".weight")
    if name in TOPS:
        return f"{TOPS[name]}.weight"
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def interleaved(values: Array, heads: int) -> Array:
    """Rows in llama.cpp's order: its RoPE pairs neighbouring lanes of a head, Hugging Face's pairs lanes half a head
    apart."""
    rows, columns = values.shape
    return values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main() -> None:
    folder, target = map(Path, sys.argv[1:])
    config = json.loads((folder / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    words = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(words)
    writer.add_token_types([CONTROL] * 2 + [NORMAL] * (len(words) - 2))
    writer.add_token_merges(tokenizer["merges"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, stored in read(folder / "model.safetensors").items():
        values = (stored.astype(np.uint32) << 16).view(np.float32)
        num_heads = heads.get(name.split(".")[-2])
        values = interleaved(values, num_heads) if num_heads else values
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
