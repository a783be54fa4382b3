"""Small GGUF files for tests, written by the gguf package."""

from pathlib import Path

import gguf
import numpy as np
from gguf import quants

from surefoot.ops.arrays import F32

TYPES = {"a.weight": "Q4_0", "b.weight": "Q8_0", "c.weight": "F16", "d.weight": "BF16", "norm.weight": "F32"}


def weights(name: str, rows: int = 6) -> F32:
    rng = np.random.default_rng(len(name) + ord(name[0]))
    shape = {"norm.weight": (64,), "experts.weight": (3, 4, 64)}.get(name, (rows, 64))
    return rng.standard_normal(shape).astype(np.float32)


def write(path: Path, split: int = 0, rows: int = 6) -> Path:
    """Writes a file with metadata of every kind and tensors of several types. split: tensors per shard; 0: one file."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split)
    writer.add_string("general.name", "a test é")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "hello", "", "wörld", "😀"])
    writer.add_array("tokenizer.ggml.scores", [0.0, -1.0, -2.5, 3.0, 1.0])
    writer.add_array("llama.flags", [True, False, True])
    for name, kind in {**TYPES, "experts.weight": "Q4_1"}.items():
        ggml_type = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, quants.quantize(weights(name, rows), ggml_type), raw_dtype=ggml_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
