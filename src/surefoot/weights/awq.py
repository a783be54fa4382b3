"""Reads AWQ checkpoints in the "gemm" layout: 4-bit codes [columns, rows], eight rows to a word, interleaved."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.formats import AffineGroups
from surefoot.ops.arrays import Array
from surefoot.weights.coded import CodedTensor, matrices, unpacked, with_zeros
from surefoot.weights.safetensors import StoredTensor

# A word's nibbles, lowest first, are rows 0, 2, 4, 6, 1, 3, 5, 7; this is the nibble of each row.
NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)


def collect(config: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> dict[str, CodedTensor]:
    """The quantised matrices by the names of their weights."""
    version, bits = (config.get("version") or "gemm").lower(), config.get("bits") or config.get("w_bit") or 4
    if version != "gemm" or bits != 4:
        raise ValueError(f"AWQ in layout {version!r} with {bits} bits is not supported: use gemm with 4 bits")
    return {f"{name}.weight": _tensor(name, stored) for name in matrices(stored, "qweight")}


def _tensor(name: str, stored: Mapping[str, StoredTensor]) -> CodedTensor:
    k, words = stored[f"{name}.qweight"].shape
    return CodedTensor(
        (8 * words, k), lambda: unpack(*(stored[f"{name}.{p}"] for p in ("qweight", "qzeros", "scales")))
    )


def unpack(qweight: StoredTensor, qzeros: StoredTensor, scales: StoredTensor) -> AffineGroups:
    codes, zeros = _in_order(qweight.array()), _in_order(qzeros.array())
    return with_zeros(codes, 4, np.ascontiguousarray(scales.floats().T), zeros)


def _in_order(words: Array) -> Array:
    """Words [columns, outputs / 8] as codes [outputs, columns]."""
    codes = unpacked(words, 4, axis=1)
    return np.ascontiguousarray(codes.reshape(len(codes), -1, 8)[:, :, NIBBLES].reshape(len(codes), -1).T)
