"""Integer weight matrices: their codes and scales as plain arrays, and packed for the kernels.

A weight expands to an integer on one grid per output row, in one int8 limb or in two (15 bits):
docs/design/integer-matmul.md has the formulas.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.ops import abi
from surefoot.ops.activations import TWO_LIMBS, ActivationForm
from surefoot.ops.arrays import F32, I8, U8, Arena, check, huge_empty, pointer, row_stride
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
    """A matrix in the kernels' own layout. `data` starts with a header that names the layout.

    inputs: the form that a model gives the rows it multiplies with this matrix."""

    format: WeightFormat
    n: int
    k: int
    data: U8
    inputs: ActivationForm = TWO_LIMBS

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass(frozen=True)
class BitField:
    """Some bits of each code of a block: runs of `run` bytes, each holding 8 / width runs of codes, low bits first."""

    offset: int  # of the first byte in its block
    width: int
    run: int


@dataclass(frozen=True)
class BlockWeights:
    """Rows as files hold them, for `pack_blocks`: codes as bit fields of blocks, a float scale and offset per group.

    weight = scale * value + offset, where value is what `span` bounds; the kernels' code for it is
    stretch * (value - centre): from the table where there is one, else stretch * (bits + add)."""

    blocks: U8  # [rows, bytes of a row]
    block: int  # columns
    block_bytes: int
    fields: tuple[BitField, ...]  # low bits, then high bits if they lie apart
    group: int
    scales: F32
    offsets: F32 | None
    table: I8 | None
    add: int
    stretch: int
    centre: int
    span: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        rows, nbytes = self.blocks.shape
        return rows, nbytes // self.block_bytes * self.block

    @property
    def format(self) -> WeightFormat:
        return WeightFormat(8 if self.table is None else 4, limbs=2, group=self.group)


def pack(backend: Backend, weights: IntegerWeights, arena: Arena | None = None) -> PackedWeights:
    """The matrix in the kernels' layout."""
    packed = empty_packed(weights.format, *weights.shape, weights.offsets is not None, arena)
    pack_rows(backend, weights, packed)
    return packed


def pack_rows(backend: Backend, weights: IntegerWeights, packed: PackedWeights, first: int = 0) -> None:
    """Write weights as row `first` and following of a packed matrix: a multiple of 32 rows, but at the end."""
    (rows, k), fmt = weights.shape, weights.format
    groups = fmt.num_groups(k)
    check("codes", weights.codes, np.int8, rows, packed.k)
    check("row_scales", weights.row_scales, np.float32, rows)
    for name, array in (("scales", weights.scales), ("offsets", weights.offsets)):
        if array is not None:
            check(name, array, np.int16, rows, groups)
    if weights.table is not None:
        check("table", weights.table, np.int8, 16)
    codes = np.ascontiguousarray(weights.codes)
    _check_room(fmt, k, packed)
    args = abi.PackArgs(
        pointer(codes), pointer(weights.scales), pointer(weights.offsets), pointer(weights.row_scales),
        pointer(weights.table), packed.n, k, first, rows,
        fmt.bits, fmt.limbs, fmt.group, pointer(packed.data), packed.nbytes,
    )  # fmt: skip
    backend.run("pack", args, codes, weights, packed)


def empty_packed(fmt: WeightFormat, n: int, k: int, with_offsets: bool, arena: Arena | None = None) -> PackedWeights:
    """Room for a packed matrix, in huge pages where the system gives them; many matrices should share an arena."""
    nbytes = load_library("portable").sf_packed_bytes(n, k, fmt.bits, fmt.limbs, fmt.group, with_offsets)
    if nbytes < 0:
        raise ValueError(f"no kernel for {fmt} with shape {n} x {k}")
    return PackedWeights(fmt, n, k, huge_empty(nbytes) if arena is None else arena.empty(nbytes))


def pack_blocks(backend: Backend, weights: BlockWeights, packed: PackedWeights, first: int = 0) -> None:
    """Write rows of weights as row `first` and following of a packed matrix: a multiple of 32 rows, but at the end.

    Raises `OpError` where a scale or offset is not finite."""
    rows, k = weights.shape
    groups = k // weights.group
    check("scales", weights.scales, np.float32, rows, groups)
    if weights.offsets is not None:
        check("offsets", weights.offsets, np.float32, rows, groups)
    if weights.table is not None:
        check("table", weights.table, np.int8, 16)
    _check_room(weights.format, k, packed)
    low, *more = (abi.BitFieldStruct(field.offset, field.width, field.run) for field in weights.fields)
    high = more[0] if more else abi.BitFieldStruct()
    args = abi.PackBlocksArgs(
        pointer(weights.blocks), pointer(weights.scales), pointer(weights.offsets), pointer(weights.table),
        pointer(packed.data), packed.nbytes, packed.n, k, first, rows, row_stride(weights.blocks), low, high,
        weights.block, weights.block_bytes, weights.group,
        weights.add, weights.stretch, weights.centre, *weights.span,
    )  # fmt: skip
    backend.run("pack_blocks", args, weights, packed)


def _check_room(fmt: WeightFormat, k: int, packed: PackedWeights) -> None:
    if (packed.format, packed.k) != (fmt, k):
        raise ValueError(f"weights in {fmt} with {k} columns, but room for {packed.format} with {packed.k}")
