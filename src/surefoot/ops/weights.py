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
    """The format of a matrix of integer weights."""

    bits: int  # of a code
    limbs: int  # int8 limbs of an expanded weight
    group: int = 0  # columns that share an integer scale; 0: no such scales

    def num_groups(self, k: int) -> int:
        return -(-k // self.group) if self.group else 0


@dataclass(frozen=True)
class IntegerWeights:
    """A matrix of integer weights as plain arrays."""

    format: WeightFormat
    codes: I8  # [n, k]
    row_scales: F32  # [n]
    scales: I16 | None = None  # [n, groups]
    offsets: I16 | None = None  # [n, groups]
    table: I8 | None = None  # values of the 16 codes, for 4-bit codes

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.codes.shape
        return n, k


@dataclass(frozen=True)
class PackedWeights:
    """A matrix in the kernels' layout."""

    format: WeightFormat
    n: int  # outputs
    k: int  # columns
    data: U8  # starts with a header that names the layout
    inputs: ActivationForm = TWO_LIMBS  # form of the rows that the model multiplies with this matrix

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass(frozen=True)
class PackedForm:
    """What a packed matrix will be, known before its weights are read."""

    format: WeightFormat
    n: int  # outputs
    k: int  # columns
    has_offsets: bool = False  # its groups have offsets beside scales

    def outline(self) -> PackedWeights:
        """A matrix of this form and size whose bytes are one byte, seen many times: for counting, not for kernels."""
        nbytes = packed_bytes(self.format, self.n, self.k, self.has_offsets)
        return PackedWeights(self.format, self.n, self.k, np.broadcast_to(np.uint8(0), (nbytes,)))


@dataclass(frozen=True)
class BitField:
    """Some bits of each code of a block: runs of `run` bytes, each with 8 / width runs of codes, low bits first."""

    offset: int  # of the first byte in its block
    width: int  # bits of each code
    run: int  # bytes


@dataclass(frozen=True)
class BlockWeights:
    """Rows in a file's layout, for `pack_blocks`: codes as bit fields of blocks, a float scale and offset per group.

    weight = scale * value + offset. The kernels' code for a value is stretch * (value - centre): an entry of the table,
    or without a table stretch * (bits + add)."""

    blocks: U8  # [rows, bytes of a row]
    block: int  # columns of a block
    block_bytes: int
    fields: tuple[BitField, ...]  # low bits, then high bits if they are stored separately
    group: int  # columns that share a scale
    scales: F32  # [rows, groups]
    offsets: F32 | None  # [rows, groups]
    table: I8 | None  # kernels' code of each 4-bit code
    add: int
    stretch: int
    centre: int
    span: tuple[int, int]  # smallest and largest value

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
    """Writes weights to a packed matrix from row `first` on: a multiple of 32 rows, except at the matrix's end."""
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


def packed_bytes(fmt: WeightFormat, n: int, k: int, with_offsets: bool) -> int:
    """The size of a packed matrix, the same for all variants."""
    nbytes: int = load_library("portable").sf_packed_bytes(n, k, fmt.bits, fmt.limbs, fmt.group, with_offsets)
    if nbytes < 0:
        raise ValueError(f"no kernel for {fmt} with shape {n} x {k}")
    return nbytes


def empty_packed(fmt: WeightFormat, n: int, k: int, with_offsets: bool, arena: Arena | None = None) -> PackedWeights:
    """Memory for a packed matrix, in huge pages if the system grants them. Many matrices should share an arena."""
    nbytes = packed_bytes(fmt, n, k, with_offsets)
    return PackedWeights(fmt, n, k, huge_empty(nbytes) if arena is None else arena.empty(nbytes))


def pack_blocks(backend: Backend, weights: BlockWeights, packed: PackedWeights, first: int = 0) -> None:
    """Writes weights to a packed matrix from row `first` on: a multiple of 32 rows, except at the matrix's end.

    Raises `OpError` if a scale or offset is not finite."""
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
