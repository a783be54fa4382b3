"""Writes safetensors files tensor by tensor, so that only one tensor is in memory."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from surefoot.ops.arrays import Array

BF16, F32, I8 = "BF16", "F32", "I8"
_SIZES = {BF16: 2, F32: 4, I8: 1}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor to write."""

    name: str
    dtype: str  # one of BF16, F32, I8
    shape: tuple[int, ...]
    make: Callable[[], Array]  # returns an array with the bytes to write


def to_bf16(values: Array) -> Array:
    """The values in bf16, rounded to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, entries: Sequence[TensorEntry]) -> None:
    header, end = {}, 0
    for entry in entries:
        start, end = end, end + prod(entry.shape) * _SIZES[entry.dtype]
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for entry in entries:
            values = entry.make()
            assert values.nbytes == prod(entry.shape) * _SIZES[entry.dtype]
            file.write(values.data)
