"""Reads compressed-tensors checkpoints: int8 (W8A8, W8A16), packed integers (W4A16 and others), FP8.

The names and shapes of the tensors are enough, so the configuration's groups and targets are not read. Scales of
activations are not used: activations have 15 bits here.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from surefoot.formats import AffineGroups
from surefoot.ops.arrays import F32, U8
from surefoot.weights.coded import CodedTensor, matrices, unpacked_densely, with_zeros
from surefoot.weights.derived import Derived, Stored
from surefoot.weights.fp8 import BLOCK, fp8_tensor
from surefoot.weights.safetensors import StoredTensor

Tensors = Mapping[str, StoredTensor]
FORMATS = {"int-quantized", "pack-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense"}


def collect(config: Mapping[str, Any], stored: Tensors) -> dict[str, Stored]:
    layout = config.get("format", "dense")
    if layout not in FORMATS:
        raise ValueError(f"compressed-tensors format {layout!r} is not supported: use {', '.join(sorted(FORMATS))}")
    if config.get("transform_config"):
        raise ValueError("compressed-tensors with transforms are not supported: use a checkpoint without")
    tensors: dict[str, Stored] = {f"{name}.weight": _packed(name, stored) for name in matrices(stored, "weight_packed")}
    for name in matrices(stored, "weight_scale"):
        tensor = stored.get(f"{name}.weight")
        if tensor is not None and tensor.dtype == "I8":
            tensors[f"{name}.weight"] = CodedTensor(tensor.shape, partial(unpack_int8, name, stored))
        elif tensor is not None and tensor.dtype == "F8_E4M3":
            tensors[f"{name}.weight"] = fp8_tensor(f"{name}.weight", stored, _block(config))
    return tensors


def _block(config: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of a scale's block, from the first config group that has one; in practice all agree."""
    groups = (config.get("config_groups") or {}).values()
    weights = (group.get("weights") for group in groups if isinstance(group, dict))
    blocks = (scheme.get("block_structure") for scheme in weights if isinstance(scheme, dict))
    rows, columns = next((block for block in blocks if block), BLOCK)
    if not (type(rows) is type(columns) is int and min(rows, columns) > 0):
        raise ValueError(f"block_structure says {rows} x {columns}")
    return rows, columns


def unpack_int8(name: str, stored: Tensors) -> AffineGroups:
    codes = stored[f"{name}.weight"].array()
    zeros = stored.get(f"{name}.weight_zero_point")
    return with_zeros(
        codes.view(np.uint8) ^ np.uint8(128),
        8,
        _by_row(stored[f"{name}.weight_scale"], len(codes)),
        None if zeros is None else _by_row(zeros, len(codes)) + np.float32(128),
    )


def _by_row(tensor: StoredTensor, n: int) -> F32:
    """Scales or zeros as [n, groups]; a single value applies to all rows."""
    values = tensor.floats()
    if values.size == 1:
        return np.full((n, 1), values.item(), np.float32)
    return values.reshape(n, -1)


# ---- packed integers ----


def _packed(name: str, stored: Tensors) -> Stored:
    n, k = (int(size) for size in stored[f"{name}.weight_shape"].array())
    words = stored[f"{name}.weight_packed"]
    if words.dtype != "I32" or len(words.shape) != 2 or words.shape[0] != n or not k > 0:
        raise ValueError(f"{words.name}: {words.dtype} {words.shape} for weights {n} x {k}")
    bits = 32 * words.shape[1] // k
    if f"{name}.weight_g_idx" in stored:
        return Derived((n, k), partial(_by_column, name, stored, bits, k))
    return CodedTensor((n, k), partial(unpack_packed, name, stored, bits, k))


def unpack_packed(name: str, stored: Tensors, bits: int, k: int) -> AffineGroups:
    """The groups of a packed matrix. Codes are packed along the columns, zeros along the rows, lowest bits first."""
    codes = _codes(name, stored, bits, k)
    scales = _by_row(stored[f"{name}.weight_scale"], len(codes))
    return with_zeros(codes, bits, scales, _zeros(name, stored, bits, len(codes)))


def _codes(name: str, stored: Tensors, bits: int, k: int) -> U8:
    return np.ascontiguousarray(unpacked_densely(stored[f"{name}.weight_packed"].array(), bits, axis=1)[:, :k])


def _zeros(name: str, stored: Tensors, bits: int, n: int) -> U8 | None:
    zeros = stored.get(f"{name}.weight_zero_point")
    return None if zeros is None else unpacked_densely(zeros.array(), bits, axis=0)[:n]


def _by_column(name: str, stored: Tensors, bits: int, k: int) -> F32:
    """The matrix in float32, for groups that are not runs of columns (see gptq.py)."""
    codes, group_of = _codes(name, stored, bits, k), stored[f"{name}.weight_g_idx"].array()
    zeros = _zeros(name, stored, bits, len(codes))
    values = codes.astype(np.float32)
    values -= 2 ** (bits - 1) if zeros is None else zeros[:, group_of].astype(np.float32)
    values *= stored[f"{name}.weight_scale"].floats()[:, group_of]
    return values
