"""Integer weight matrices: their codes and scales as plain arrays, and packed for the kernels.

A weight expands to an integer on one grid per output row, in one int8 limb or in two (15 bits):
docs/design/integer-matmul.md has the formulas.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I8, U8, check, huge_empty, pointer
from surefoot.ops.backend import Backend, load_library

I16 = NDArray[np.int16]


@dataclass(frozen=True)
class WeightFormat:
    """bits of a code, int8 limbs of an expanded weight, columns that share an integer scale (0: none have one)."""

    bits: int
    limbs: int
    group: int = 0

    def num_groups(self, k: int) -> int:
        return -(-k // self.group) if self.group else 0


@dataclass(frozen=True)
class IntegerWeights:
    """[n, k] codes; scales and offsets int16 [n, groups]; row_scales float32 [n]; a table of 16 for 4-bit codes."""

    format: WeightFormat
    codes: I8
    row_scales: F32
    scales: I16 | None = None
    offsets: I16 | None = None
    table: I8 | None = None

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.codes.shape
        return n, k


@dataclass(frozen=True)
class PackedWeights:
    """A matrix in the kernels' own layout. `data` starts with a header that names the layout."""

    format: WeightFormat
    n: int
    k: int
    data: U8

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


def pack(backend: Backend, weights: IntegerWeights) -> PackedWeights:
    """The matrix in the kernels' layout, in huge pages where the system gives them."""
    (n, k), fmt = weights.shape, weights.format
    groups = fmt.num_groups(k)
    check("codes", weights.codes, np.int8, n, k)
    check("row_scales", weights.row_scales, np.float32, n)
    for name, array in (("scales", weights.scales), ("offsets", weights.offsets)):
        if array is not None:
            check(name, array, np.int16, n, groups)
    if weights.table is not None:
        check("table", weights.table, np.int8, 16)
    codes = np.ascontiguousarray(weights.codes)
    nbytes = load_library("portable").sf_packed_bytes(n, k, fmt.bits, fmt.limbs, fmt.group, weights.offsets is not None)
    if nbytes < 0:
        raise ValueError(f"no kernel for {fmt} with shape {n} x {k}")
    data = huge_empty(nbytes)
    args = abi.Pack(
        pointer(codes), pointer(weights.scales), pointer(weights.offsets), pointer(weights.row_scales),
        pointer(weights.table), n, k, fmt.bits, fmt.limbs, fmt.group, pointer(data), data.nbytes,
    )  # fmt: skip
    backend.run("pack", args, codes, weights, data)
    return PackedWeights(fmt, n, k, data)
