"""Bit fields of ggml's records, as arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.arrays import F32, U8

Blocks = NDArray[Any]  # structured: one record per block, [n, blocks]
Parameters = tuple[F32, F32 | None]  # scales and offsets, [n, blocks, groups of a block]


def as_floats(halves: NDArray[np.float16]) -> F32:
    """Half-precision numbers, one per block."""
    return halves[..., None].astype(np.float32)


def bits(packed: U8, width: int, run: int) -> U8:
    """The bit fields of bytes [..., count]: a run of `run` bytes has 8 / width runs of codes, the lowest bits first."""
    if width == 8:
        return packed
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    runs = packed.reshape(*packed.shape[:-1], -1, 1, run)
    fields: U8 = (runs >> shifts) & np.uint8(2**width - 1)
    return fields.reshape(*packed.shape[:-1], -1)


def fields(words: NDArray[Any], width: int, count: int) -> NDArray[Any]:
    """The first `count` fields of `width` bits of each word, the lowest bits first: [..., words * count]."""
    shifts = np.arange(0, width * count, width, dtype=words.dtype)
    mask = words.dtype.type(2**width - 1)
    parts: NDArray[Any] = words[..., None] >> shifts & mask
    return parts.reshape(*words.shape[:-1], -1)
