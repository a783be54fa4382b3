"""Integer weight matrices: their codes and scales as plain arrays, and packed for the kernels.

A weight expands to an integer on one grid per output row, in one int8 limb or in two (15 bits):
docs/design/integer-matmul.md has the formulas.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from surefoot.ops import abi
from surefoot.ops.activations import TWO_LIMBS, ActivationForm
from surefoot.ops.arrays import F32, I8, U8, Arena, Array, check, huge_empty, pointer, row_stride
from surefoot.ops.backend import Backend, load_library

F16 = NDArray[np.float16]
I16 = NDArray[np.int16]
SUPER_BLOCK = 256  # columns
_ONE = np.float32(1)


@dataclass(frozen=True)
class WeightFormat:
    """The format of a matrix of integer weights."""

    bits: int  # of a code as kernels multiply it
    limbs: int  # int8 limbs of an expanded weight
    group: int = 0  # columns that share an integer scale; 0: no such scales
    narrow_bits: int = 0  # of a code in memory, where they are fewer; 0: they are not
    scale_bits: int = 16  # of a group's scale in memory; 8, 4: it is multiplied by a number for 256 columns

    @property
    def width(self) -> int:
        """Bits of a code in memory."""
        return self.narrow_bits or self.bits

    @property
    def wide(self) -> "WeightFormat":
        """The format with codes and scales in memory as kernels multiply them."""
        return replace(self, narrow_bits=0, scale_bits=16)

    def num_groups(self, k: int) -> int:
        return -(-k // self.group) if self.group else 0


class Packing(Enum):
    """What of a file's width packed weights keep; the weights are the same integers."""

    WIDE = "wide"  # nothing: codes and scales are as kernels multiply them
    CODES = "codes"  # codes of 5 and 6 bits
    NARROW = "narrow"  # all codes and scales


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

    @property
    def has_offsets(self) -> bool:
        return self.offsets is not None


def expand(weights: IntegerWeights) -> NDArray[np.int64]:
    """The integer that each code represents, [n, k]."""
    fmt, (n, k) = weights.format, weights.shape
    t: NDArray[np.int64] = weights.codes.astype(np.int64)
    if weights.table is not None:
        t = weights.table.astype(np.int64)[t]
    if weights.scales is None:
        return t
    columns = np.arange(k) // fmt.group
    scale = weights.scales.astype(np.int64)[:, columns]
    offset = np.zeros((n, k), np.int64) if weights.offsets is None else weights.offsets.astype(np.int64)[:, columns]
    if fmt.bits == 4:
        return t * scale + offset
    return ((t * scale + 64) >> 7) + offset


def dequantise(weights: IntegerWeights) -> F32:
    """The matrix as floats."""
    return expand(weights).astype(np.float32) * weights.row_scales[:, None]


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
class FactoredScales:
    """Scales and offsets of groups as products: a number for 256 columns (a super-block) times an integer."""

    steps: F16  # [rows, super-blocks]
    integers: I8  # [rows, groups]
    offset_steps: F16 | None = None
    offset_integers: I8 | None = None
    bits: int = 8  # of an integer: 4 if none is negative or larger than 15
    power: int = 0  # all products are multiplied by two to this power

    def reshaped(self, rows: int) -> "FactoredScales":
        """With two dimensions each, contiguous."""
        return replace(
            self,
            steps=_rows(self.steps, rows),
            integers=_rows(self.integers, rows),
            offset_steps=None if self.offset_steps is None else _rows(self.offset_steps, rows),
            offset_integers=None if self.offset_integers is None else _rows(self.offset_integers, rows),
        )

    @property
    def has_offsets(self) -> bool:
        return self.offset_steps is not None

    def scales(self, factors: F32 | np.float32 = _ONE) -> F32:
        """The products, [rows, groups]; `factors` [rows, 1] multiply the steps first."""
        return _products(self.steps, self.integers, factors * np.float32(2.0**self.power))

    def offsets(self, factors: F32 | np.float32 = _ONE) -> F32 | None:
        if self.offset_steps is None or self.offset_integers is None:
            return None
        return _products(self.offset_steps, self.offset_integers, factors * np.float32(2.0**self.power))


def _rows(array: NDArray[Any], rows: int) -> NDArray[Any]:
    return np.ascontiguousarray(array).reshape(rows, -1)


def _products(steps: F16, integers: I8, factors: F32 | np.float32) -> F32:
    wide: F32 = steps.astype(np.float32) * factors
    with np.errstate(invalid="ignore"):  # whoever rounds them refuses what is not finite
        return np.repeat(wide, integers.shape[1] // steps.shape[1], axis=1) * integers


@dataclass(frozen=True)
class BlockWeights:
    """Rows in a file's layout, for `pack_blocks`: codes as bit fields of blocks, a scale and offset per group.

    weight = scale * value + offset. The kernels' code for a value is stretch * (value - centre): an entry of the table,
    or without a table stretch * (bits + add)."""

    blocks: U8  # [rows, bytes of a row]
    block: int  # columns of a block
    block_bytes: int
    fields: tuple[BitField, ...]  # low bits, then high bits if they are stored separately
    group: int  # columns that share a scale
    scales: F32 | FactoredScales  # [rows, groups], with offsets if factored
    offsets: F32 | None  # [rows, groups]
    table: I8 | None  # kernels' code of each 4-bit code
    width: int  # bits of a code
    add: int
    stretch: int
    centre: int
    span: tuple[int, int]  # smallest and largest value
    packing: Packing = Packing.WIDE

    @property
    def shape(self) -> tuple[int, int]:
        rows, nbytes = self.blocks.shape
        return rows, nbytes // self.block_bytes * self.block

    @property
    def format(self) -> WeightFormat:
        bits = 8 if self.table is None else 4
        if self.packing is Packing.WIDE or (self.packing is Packing.CODES and bits == 4):
            return WeightFormat(bits, 2, self.group)
        is_narrow = self.packing is Packing.NARROW
        scale_bits = self.scales.bits if is_narrow and isinstance(self.scales, FactoredScales) else 16
        return WeightFormat(bits, 2, self.group, self.width if self.width < bits else 0, scale_bits)

    @property
    def has_offsets(self) -> bool:
        return self.scales.has_offsets if isinstance(self.scales, FactoredScales) else self.offsets is not None


def pack(backend: Backend, weights: IntegerWeights, arena: Arena | None = None) -> PackedWeights:
    """The matrix in the kernels' layout."""
    packed = empty_packed(backend, weights.format, *weights.shape, weights.offsets is not None, arena)
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
    nbytes: int = load_library("portable").sf_packed_bytes(
        n, k, fmt.bits, fmt.limbs, fmt.group, with_offsets, fmt.width, fmt.scale_bits
    )
    if nbytes < 0:
        raise ValueError(f"no kernel for {fmt} with shape {n} x {k}")
    return nbytes


def empty_packed(
    backend: Backend, fmt: WeightFormat, n: int, k: int, with_offsets: bool, arena: Arena | None = None
) -> PackedWeights:
    """Memory for a packed matrix that this backend multiplies, in huge pages if the system grants them. Many matrices
    should share an arena."""
    nbytes = packed_bytes(fmt, n, k, with_offsets)
    data = huge_empty(nbytes) if arena is None else arena.empty(nbytes)
    place(backend, n, data)
    return PackedWeights(fmt, n, k, data)


def place(backend: Backend, n: int, data: U8) -> None:
    """Asks for the memory of a packed matrix of n outputs, which nobody has touched yet: the rows that the threads of a
    NUMA node multiply will be in that node's memory."""
    if backend.pages.are_placed:
        backend.pages.split(data.ctypes.data, backend.node_ends(n, data.nbytes))


def pack_blocks(backend: Backend, weights: BlockWeights, packed: PackedWeights, first: int = 0) -> None:
    """Writes weights to a packed matrix from row `first` on: a multiple of 32 rows, except at the matrix's end.

    Raises `OpError` if a scale or offset is not finite."""
    (rows, k), fmt = weights.shape, weights.format
    _check_room(fmt, k, packed)
    if weights.table is not None:
        check("table", weights.table, np.int8, 16)
    scales, power = _scale_pointers(weights, rows, k)
    low, *more = (abi.BitFieldStruct(field.offset, field.width, field.run) for field in weights.fields)
    high = more[0] if more else abi.BitFieldStruct()
    args = abi.PackBlocksArgs(
        pointer(weights.blocks), *scales, pointer(weights.table), pointer(packed.data), packed.nbytes,
        packed.n, k, first, rows, row_stride(weights.blocks), low, high,
        weights.block, weights.block_bytes, weights.group,
        weights.add, weights.stretch, weights.centre, fmt.width, fmt.scale_bits, power, 0, *weights.span,
    )  # fmt: skip
    backend.run("pack_blocks", args, weights, packed)


def _scale_pointers(weights: BlockWeights, rows: int, k: int) -> tuple[tuple[int | None, ...], int]:
    """Scales and offsets, then the same four as factors; and the power of two of these."""
    groups, scales = k // weights.group, weights.scales
    if not isinstance(scales, FactoredScales):
        floats = (scales, weights.offsets)
        for name, array in zip(("scales", "offsets"), floats, strict=True):
            if array is not None:
                check(name, array, np.float32, rows, groups)
        return (*map(pointer, floats), None, None, None, None), 0
    steps, integers = (scales.steps, scales.offset_steps), (scales.integers, scales.offset_integers)
    for array in filter(_is_there, steps):
        check("steps", array, np.float16, rows, k // SUPER_BLOCK)
    for array in filter(_is_there, integers):
        check("integers", array, np.int8, rows, groups)
    return (None, None, *map(pointer, (*steps, *integers))), scales.power


def _is_there(array: Array | None) -> TypeGuard[Array]:
    return array is not None


def _check_room(fmt: WeightFormat, k: int, packed: PackedWeights) -> None:
    if (packed.format, packed.k) != (fmt, k):
        raise ValueError(f"weights in {fmt} with {k} columns, but room for {packed.format} with {packed.k}")
