"""Writes a GGUF file of random weights at a published shape, one tensor in memory at a time. Speed depends on shapes
alone.

The blocks of quantised tensors come from one pool of random blocks, which repeats: drawing billions of numbers would
take longer than all measurements. The pool is longer than an expert's matrix, so that neighbours differ.
"""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes.llama import vocabulary
from surefoot.bench.harness.progress import Say
from surefoot.bench.peers.install import cache_folder
from surefoot.formats import ggml
from surefoot.machine.atomic_write import atomic_write
from surefoot.ops.arrays import Array
from surefoot.plan.shapes import ShapeHeader, known_shapes, make_header
from surefoot.weights.gguf_header import TensorInfo

POOL_BLOCKS = (1 << 18) + 1  # odd, so that no matrix is a whole number of pools
DEVIATION = 0.02
NORMAL, CONTROL = 1, 3  # kinds of tokens
# Fields that are not random, so that weights have about the DEVIATION of trained ones.
SCALES: dict[str, dict[str, float]] = {
    "Q4_0": {"d": 0.0043},
    "Q4_K": {"d": 0.00014, "dmin": 0.00105},
    "Q6_K": {"d": 0.000015},
    "Q8_0": {"d": 0.00027},
    "MXFP4": {"e": 120},
}


def published_header(name: str, layers: int | None = None, fmt: str = "") -> ShapeHeader:
    """Of a known shape's file with all layers or fewer. By default it has 4 bits, embeddings and head 8."""
    shape = known_shapes()[name]
    shape = replace(shape, layers=layers or shape.layers)
    header = make_header(shape, fmt or ("mxfp4" if shape.format == "mxfp4" else "q4_0_l"))
    return replace(header, name="-".join(filter(None, (name, "random", str(shape.layers), "layers", fmt))))


def make_random_gguf(header: ShapeHeader, folder: Path | None, say: Say) -> Path:
    """The file, written if it does not exist. folder: by default one in the cache."""
    folder = folder or cache_folder().with_name("shapes")
    path = folder / f"{header.name}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_random_gguf(header, path, say)
    return path


def write_random_gguf(header: ShapeHeader, path: Path, say: Say) -> None:
    """Same header, same bytes."""
    with atomic_write(path) as beside:
        _write(header, beside, say)


def _write(header: ShapeHeader, path: Path, say: Say) -> None:
    gguf = _package()
    writer = gguf.GGUFWriter(path, header.metadata["general.architecture"])
    _add_metadata(writer, header)
    make, kinds, tensors = TensorMaker(), gguf.GGMLQuantizationType, header.tensors.values()
    for tensor in tensors:
        empty = np.empty(0, np.float32 if tensor.type.is_float else np.uint8).dtype
        raw = None if tensor.type.is_float else kinds[tensor.type.name]
        writer.add_tensor_info(tensor.name, stored_shape(tensor), empty, tensor.nbytes, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    total, done = sum(tensor.nbytes for tensor in tensors), 0
    for tensor in tensors:
        writer.write_tensor_data(make(tensor))
        done += tensor.nbytes
        say(f"{header.name}: {done / 1e9:.1f} of {total / 1e9:.1f} GB")
    writer.close()


def _package() -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError:
        raise ValueError("gguf is not installed: pip install gguf") from None


def _add_metadata(writer: Any, header: ShapeHeader) -> None:
    adds: dict[type, Callable[[str, Any], None]] = {
        int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
        np.ndarray: lambda key, values: writer.add_array(key, values.tolist()),
    }  # fmt: skip
    for key, value in header.metadata.items():
        if key != "general.architecture":  # the writer has it already
            adds[type(value)](key, value)
    words = vocabulary(header.tensors["token_embd.weight"].shape[0])
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(words)
    writer.add_token_types([CONTROL] * 2 + [NORMAL] * (len(words) - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def stored_shape(tensor: TensorInfo) -> tuple[int, ...]:
    """In values, or in bytes where blocks of values share them."""
    return tensor.shape if tensor.type.is_float else (*tensor.shape[:-1], tensor.row_bytes)


class TensorMaker:
    """Makes tensors of random weights."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._pools: dict[str, Array] = {}
        self._start = 0  # in the pools, of the next tensor

    def __call__(self, tensor: TensorInfo) -> Array:
        if tensor.type.is_float:
            return self._floats(tensor)
        kind = tensor.type.name
        if kind not in self._pools:
            self._pools[kind] = self._pool(kind)
        pool = self._pools[kind]
        self._start = (self._start + 7919) % len(pool)
        count = tensor.nbytes // pool.itemsize
        return np.resize(np.roll(pool, -self._start), count).view(np.uint8).reshape(stored_shape(tensor))

    def _floats(self, tensor: TensorInfo) -> Array:
        """Norms and scales are 1, rates of forgetting -1; biases, sinks, routers and convolutions are about 0."""
        is_scale = len(tensor.shape) == 1 and not tensor.name.endswith((".bias", "sinks.weight"))
        drawn = self._rng.standard_normal(tensor.shape, np.float32) * np.float32(DEVIATION)
        return np.full(tensor.shape, -1 if tensor.name.endswith("ssm_a") else 1, np.float32) if is_scale else drawn

    def _pool(self, name: str) -> Array:
        record = ggml.NAMES[name].record
        pool = self._rng.integers(0, 256, POOL_BLOCKS * record.itemsize, np.uint8).view(record)
        for part, value in SCALES[name].items():
            pool[part] = value
        if "d" in SCALES[name]:  # codes have a mean that is not 0, which would make all rows alike
            signs = self._rng.choice(np.array([-1, 1], np.float16), len(pool))
            for part in SCALES[name]:
                pool[part] *= signs
        return pool
