"""stories260K as a GGUF file: a real model that answers in milliseconds."""

import functools
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).parents[2] / "shared" / "data"
WEIGHTS, VOCABULARY = SHARED / "stories260K.bin", SHARED / "stories260K-tokenizer.bin"
LANES = 16  # the kernels' heads have a multiple of this many: stories260K's have 8, the other 8 are zero
LAST_WORD = 410  # in the vocabulary; characters follow
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6


@functools.cache
def stories_gguf(*control: str) -> Path:
    """Made once for each test process. control: texts of control tokens, in place of the last words."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
    for file in (WEIGHTS, VOCABULARY):
        if not file.exists():
            pytest.skip(f"{file} is not there")
    folder = Path(tempfile.mkdtemp(prefix="surefoot-stories-"))
    path = folder / "stories260K.gguf"
    write_llama2c(gguf.GGUFWriter(path, "llama"), WEIGHTS, VOCABULARY, control)
    return path


def write_llama2c(writer: "object", weights: Path, vocabulary: Path, control: Sequence[str] = ()) -> None:
    """A model and tokenizer of llama2.c, in float32."""
    _write_model(writer, weights.read_bytes())
    _write_tokenizer(writer, vocabulary.read_bytes(), control)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_model(writer: "object", data: bytes) -> None:
    dim, hidden, layers, heads, kv_heads, vocab, context = struct.unpack_from("<7i", data)
    values, offset = np.frombuffer(data, np.float32, offset=28), 0

    def take(*shape: int) -> np.ndarray:
        nonlocal offset
        size = int(np.prod(shape))
        offset += size
        return values[offset - size : offset].reshape(shape)

    head = dim // heads
    lanes = -(-head // LANES) * LANES
    embeddings = take(vocab, dim)
    attention_norm = take(layers, dim)
    # The scale that the head's new length gives is made up for in the queries.
    q = _wider(take(layers, heads, head, dim), lanes, axis=2) * np.float32(np.sqrt(lanes / head))
    k, v = (_wider(take(layers, kv_heads, head, dim), lanes, axis=2) for _ in range(2))
    out = _wider(take(layers, dim, heads, head), lanes, axis=3)
    ffn_norm = take(layers, dim)
    gate, down, up = take(layers, hidden, dim), take(layers, dim, hidden), take(layers, hidden, dim)
    final_norm = take(dim)

    writer.add_context_length(context)
    writer.add_embedding_length(dim)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(lanes)
    writer.add_value_length(lanes)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    tensors = {"token_embd": embeddings, "output_norm": final_norm}
    for i in range(layers):
        tensors |= {
            f"blk.{i}.attn_norm": attention_norm[i], f"blk.{i}.attn_q": q[i].reshape(-1, dim),
            f"blk.{i}.attn_k": k[i].reshape(-1, dim), f"blk.{i}.attn_v": v[i].reshape(-1, dim),
            f"blk.{i}.attn_output": out[i].reshape(dim, -1), f"blk.{i}.ffn_norm": ffn_norm[i],
            f"blk.{i}.ffn_gate": gate[i], f"blk.{i}.ffn_up": up[i], f"blk.{i}.ffn_down": down[i],
        }  # fmt: skip
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(tensor))


def _wider(array: np.ndarray, lanes: int, axis: int) -> np.ndarray:
    widths = [(0, lanes - size if number == axis else 0) for number, size in enumerate(array.shape)]
    return np.pad(array, widths)


def _write_tokenizer(writer: "object", data: bytes, control: Sequence[str]) -> None:
    offset, texts, scores = 4, [], []
    while offset < len(data):
        score, length = struct.unpack_from("<fi", data, offset)
        offset += 8 + length
        texts.append(data[offset - length : offset].decode().replace(" ", "▁"))
        scores.append(score)
    texts[:259] = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(texts) - 259)
    words = range(LAST_WORD - len(control), LAST_WORD)
    for token, text in zip(words, control, strict=True):
        texts[token], kinds[token] = text, CONTROL
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ bos_token }}{{ messages | map(attribute='content') | join(' ') }}")
