"""Reads FP8 checkpoints (e4m3), with a scale per tensor, per row, or per block of 128 by 128.

No kernel here multiplies FP8. The weights are rounded to int8 codes in groups of 32. That keeps all bits of FP8, except
for weights below an eighth of their group's largest power of two (see docs/design/checkpoints.md).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.formats import AffineGroups
from surefoot.formats.fp8 import e4m3_floats, nearest_groups
from surefoot.ops.arrays import F32, I64
from surefoot.weights.safetensors import StoredTensor

BLOCK = (128, 128)


@dataclass(frozen=True)
class Fp8Tensor:
    """An FP8 matrix with its scales."""

    weight: StoredTensor  # the FP8 values
    scale: StoredTensor  # one per tensor, row or block
    block: tuple[int, int]  # rows and columns that share a scale, if scales are per block

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    def floats(self, rows: slice = slice(None)) -> F32:
        values = e4m3_floats(self.weight.array()[rows])
        return values * self._scales(np.arange(self.shape[1]))[rows]

    def groups(self) -> AffineGroups:
        k = self.shape[1]
        group = next((size for size in (32, 16) if k % size == 0), 0)
        if not group:
            raise ValueError(f"FP8 with {k} columns: only multiples of 16 are supported")
        values = e4m3_floats(self.weight.array())
        if np.isnan(values).any():
            raise ValueError("weights are not a number")
        return nearest_groups(values, self._scales(np.arange(0, k, group)), group)

    def _scales(self, columns: I64) -> F32:
        """The scales of every row at the given columns."""
        scales = self.scale.floats()
        rows_of, columns_of = _scale_block(self.shape, scales.shape, self.block)
        by_row = scales.reshape(-1, -(-self.shape[1] // columns_of))[np.arange(self.shape[0]) // rows_of]
        return np.ascontiguousarray(by_row[:, columns // columns_of])


def _scale_block(shape: tuple[int, ...], scales: tuple[int, ...], block: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns that share a scale: the whole tensor, one row, or one block."""
    n, k = shape
    if math.prod(scales) == 1:
        return n, k
    if scales in ((n,), (n, 1)):
        return 1, k
    if scales == (-(-n // block[0]), -(-k // block[1])):
        return block
    raise ValueError(f"scales {scales} for weights {shape} in blocks of {block}")


def collect(config: Mapping[str, Any], stored: Mapping[str, StoredTensor]) -> dict[str, Fp8Tensor]:
    rows, columns = config.get("weight_block_size") or BLOCK
    names = [name for name, tensor in stored.items() if tensor.dtype == "F8_E4M3"]
    return {name: fp8_tensor(name, stored, (rows, columns)) for name in names}


def fp8_tensor(name: str, stored: Mapping[str, StoredTensor], block: tuple[int, int] = BLOCK) -> Fp8Tensor:
    scale = stored.get(f"{name}_scale_inv") or stored.get(f"{name}_scale")
    if scale is None:
        raise ValueError(f"{name} is FP8, but there is neither {name}_scale nor {name}_scale_inv")
    return Fp8Tensor(stored[name], scale, block)
