"""Writes a GGUF file of random weights, one tensor in memory at a time. Speed depends on shapes alone.

The blocks of quantised tensors come from one pool of random blocks, which repeats: drawing billions of numbers would
take longer than all measurements. The pool is longer than an expert's matrix, so that neighbours differ.
"""

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.bench.harness.progress import Say
from surefoot.bench.model.published_shapes import FLOATS, PublishedShape, TensorSpec
from surefoot.bench.peers.install import cache_folder
from surefoot.bench.peers.shape import vocabulary
from surefoot.formats import ggml
from surefoot.machine.atomic_write import atomic_write
from surefoot.ops.arrays import Array

POOL_BLOCKS = (1 << 18) + 1  # odd, so that no matrix is a whole number of pools
DEVIATION = 0.02
NORMAL, CONTROL = 1, 3  # kinds of tokens
# Fields that are not random, so that weights have about the DEVIATION of trained ones.
SCALES: dict[str, dict[str, float]] = {"Q4_0": {"d": 0.0043}, "Q8_0": {"d": 0.00027}, "MXFP4": {"e": 120}}


def make_random_gguf(shape: PublishedShape, folder: Path | None, say: Say) -> Path:
    """The file, written if it does not exist. folder: by default one in the cache."""
    folder = folder or cache_folder().with_name("shapes")
    path = folder / f"{shape.name}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_random_gguf(shape, path, say)
    return path


def write_random_gguf(shape: PublishedShape, path: Path, say: Say) -> None:
    """Same shape, same bytes."""
    with atomic_write(path) as beside:
        _write(shape, beside, say)


def _write(shape: PublishedShape, path: Path, say: Say) -> None:
    gguf = _package()
    writer = gguf.GGUFWriter(path, shape.architecture)
    _add_metadata(writer, shape)
    make, kinds = TensorMaker(), gguf.GGMLQuantizationType
    for tensor in shape.tensors:
        empty = np.empty(0, np.float32 if tensor.kind == FLOATS else np.uint8).dtype
        raw = None if tensor.kind == FLOATS else kinds[tensor.kind]
        writer.add_tensor_info(tensor.name, stored_shape(tensor), empty, stored_bytes(tensor), raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    total, done = sum(map(stored_bytes, shape.tensors)), 0
    for tensor in shape.tensors:
        writer.write_tensor_data(make(tensor))
        done += stored_bytes(tensor)
        say(f"{shape.name}: {done / 1e9:.1f} of {total / 1e9:.1f} GB")
    writer.close()


def _package() -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError:
        raise ValueError("gguf is not installed: pip install 'surefoot[compress]'") from None


def _add_metadata(writer: Any, shape: PublishedShape) -> None:
    adds: dict[type, Callable[[str, Any], None]] = {
        int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array,
    }  # fmt: skip
    for key, value in shape.metadata.items():
        adds[type(value)](f"{shape.architecture}.{key}", value)
    writer.add_vocab_size(shape.vocab_size)
    words = vocabulary(shape.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(words)
    writer.add_token_types([CONTROL] * 2 + [NORMAL] * (len(words) - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def stored_shape(tensor: TensorSpec) -> tuple[int, ...]:
    """In values, or in bytes where blocks of values share them."""
    if tensor.kind == FLOATS:
        return tensor.shape
    kind = ggml.NAMES[tensor.kind]
    return (*tensor.shape[:-1], tensor.shape[-1] // kind.block * kind.nbytes)


def stored_bytes(tensor: TensorSpec) -> int:
    return math.prod(stored_shape(tensor)) * (4 if tensor.kind == FLOATS else 1)


class TensorMaker:
    """Makes tensors of random weights."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._pools: dict[str, Array] = {}
        self._start = 0  # in the pools, of the next tensor

    def __call__(self, tensor: TensorSpec) -> Array:
        if tensor.kind == FLOATS:
            return self._floats(tensor)
        if tensor.kind not in self._pools:
            self._pools[tensor.kind] = self._pool(tensor.kind)
        pool = self._pools[tensor.kind]
        self._start = (self._start + 7919) % len(pool)
        count = stored_bytes(tensor) // pool.itemsize
        return np.resize(np.roll(pool, -self._start), count).view(np.uint8).reshape(stored_shape(tensor))

    def _floats(self, tensor: TensorSpec) -> Array:
        """Norms and scales are 1, rates of forgetting -1; biases, sinks, routers and convolutions are about 0."""
        is_scale = len(tensor.shape) == 1 and not tensor.name.endswith((".bias", "sinks.weight"))
        drawn = self._rng.standard_normal(tensor.shape, np.float32) * np.float32(DEVIATION)
        return np.full(tensor.shape, -1 if tensor.name.endswith("ssm_a") else 1, np.float32) if is_scale else drawn

    def _pool(self, name: str) -> Array:
        record = ggml.NAMES[name].record
        pool = self._rng.integers(0, 256, POOL_BLOCKS * record.itemsize, np.uint8).view(record)
        for part, value in SCALES[name].items():
            pool[part] = value
        if "d" in SCALES[name]:  # Q4_0's codes have a mean below 0, which would make all rows alike
            pool["d"] *= self._rng.choice(np.array([-1, 1], np.float16), len(pool))
        return pool
