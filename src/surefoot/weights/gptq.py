"""Reads GPTQ checkpoints: codes [columns, rows], packed along the columns, with a group for each column.

Where groups are runs of columns, the codes are kept. With act-order a column may belong to any group, which no kernel
here supports: the weights are dequantised and rounded again, like those of a float checkpoint.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from surefoot.formats import AffineGroups
from surefoot.ops.arrays import F32, I64, U8
from surefoot.weights.coded import CodedTensor, matrices, unpacked, with_zeros
from surefoot.weights.derived import Derived, Stored
from surefoot.weights.safetensors import StoredTensor


def collect(config: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> dict[str, Stored]:
    bits = config["bits"]
    # The first version of the format stores each zero point minus one.
    correction = 0 if config.get("checkpoint_format", "gptq") == "gptq_v2" else 1
    return {f"{name}.weight": _tensor(name, stored, bits, correction) for name in matrices(stored, "qweight")}


def _tensor(name: str, stored: Mapping[str, StoredTensor], bits: int, correction: int) -> Stored:
    words, n = stored[f"{name}.qweight"].shape
    shape, scales = (n, words * 32 // bits), stored[f"{name}.scales"]
    group_of = _groups_of(stored.get(f"{name}.g_idx"), shape[1], scales.shape[0])
    parts = stored[f"{name}.qweight"], stored[f"{name}.qzeros"], scales, bits, correction
    if (np.diff(group_of) >= 0).all() and (np.bincount(group_of) == shape[1] // scales.shape[0]).all():
        return CodedTensor(shape, partial(unpack, *parts))
    return Derived(shape, partial(dequantised, *parts, group_of))


def _groups_of(g_idx: StoredTensor | None, k: int, num_groups: int) -> I64:
    if g_idx is None:
        return np.arange(k) * num_groups // k
    group_of = g_idx.array().astype(np.int64)
    if group_of.shape != (k,) or group_of.min() < 0 or group_of.max() >= num_groups:
        raise ValueError(f"{g_idx.name} does not name one of {num_groups} groups for each of {k} columns")
    return group_of


def unpack(
    qweight: StoredTensor, qzeros: StoredTensor, scales: StoredTensor, bits: int, correction: int
) -> AffineGroups:
    codes = _codes(qweight, bits)
    zeros = _zeros(qzeros, len(codes), bits, correction)
    return with_zeros(codes, bits, np.ascontiguousarray(scales.floats().T), zeros)


def dequantised(
    qweight: StoredTensor, qzeros: StoredTensor, scales: StoredTensor, bits: int, correction: int, group_of: I64
) -> F32:
    """scale * (code - zero) in float32. group_of: the group of each column."""
    values = _codes(qweight, bits).astype(np.float32)
    values -= _zeros(qzeros, len(values), bits, correction).astype(np.float32)[:, group_of]
    values *= scales.floats().T[:, group_of]
    return values


def _codes(qweight: StoredTensor, bits: int) -> U8:
    return np.ascontiguousarray(unpacked(qweight.array(), bits, axis=0).T)


def _zeros(qzeros: StoredTensor, n: int, bits: int, correction: int) -> U8:
    """Zero points [n, groups]. A zero point of 0, stored as -1, has wrapped to the largest code."""
    zeros = unpacked(qzeros.array(), bits, axis=1).T[:n] + np.uint8(correction)
    return zeros & np.uint8(2**bits - 1)
