"""ggml's block types: the bit layout of each, and the weights that the bits encode. Independent of files.

`decode` returns exactly what ggml defines: weight = scale * value + offset, with a value per code and a scale (and
offset) per group. `block_weights` passes the same to the native packer without unpacking codes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.formats import ggml_codebooks as books
from surefoot.formats.ggml_fields import Blocks, Parameters, as_floats, bits
from surefoot.formats.grid import AffineGroups, Grid
from surefoot.ops.arrays import F32, I8, U8
from surefoot.ops.weights import BitField, BlockWeights, FactoredScales, Packing


@dataclass(frozen=True)
class Part:
    """A field of the record with some bits of each code: see `BitField`."""

    name: str  # of the field
    width: int  # bits of each code
    run: int  # codes whose bits lie in consecutive bytes


@dataclass(frozen=True)
class BlockType:
    """One of ggml's types: `block` weights share one record of bytes.

    Plain floats have a block of 1 and no parameters. The value of a code of up to 4 bits is an entry of the table. A
    code of 5 or 6 bits counts from the low end of the span. A code of 8 bits is a signed byte.
    """

    name: str  # ggml's
    block: int  # weights
    record: np.dtype[Any]  # layout of a block
    group: int = 0  # weights that share a scale
    span: tuple[int, int] = (0, 0)  # smallest and largest value
    values: tuple[int, ...] | None = None  # by code; None: no table
    parts: tuple[Part, ...] = ()  # fields with the bits of codes, the low bits first
    parameters: Callable[[Blocks], Parameters | FactoredScales] | None = None  # reads scales and offsets
    codes: Callable[[Blocks], U8] | None = None  # reads codes that are not simply the bits of `parts`

    @property
    def is_float(self) -> bool:
        return self.parameters is None

    @property
    def nbytes(self) -> int:
        return self.record.itemsize

    @property
    def base(self) -> int:
        """The value of 8-bit code 0."""
        return 0 if sum(part.width for part in self.parts) == 8 else self.span[0]

    @property
    def width(self) -> int:
        """Bits of a code."""
        return sum(part.width for part in self.parts) if self.values is None else (len(self.values) - 1).bit_length()

    @property
    def table(self) -> I8 | None:
        return None if self.values is None else np.array([*self.values, *[0] * (16 - len(self.values))], np.int8)


def decode(kind: BlockType, rows: U8) -> AffineGroups:
    """Decode rows of raw bytes [n, bytes of a row] of a type that is not a plain float."""
    blocks = np.ascontiguousarray(rows).view(kind.record)
    codes = _codes(kind, blocks).reshape(len(rows), -1).view(np.int8)
    if kind.values is None:
        # The kernels have no code -128. ggml's quantiser never writes it; it is read as -127.
        codes = np.maximum(codes + np.int8(kind.base), np.int8(-127))
    parameters = _parameters(kind, blocks)
    factored = parameters if isinstance(parameters, FactoredScales) else None
    return AffineGroups(codes, kind.group, *_as_floats(parameters), kind.table, kind.span, factored)


def scales_and_offsets(kind: BlockType, blocks: Blocks) -> Parameters:
    """As float32, [n, groups]."""
    return _as_floats(_parameters(kind, blocks))


def _as_floats(parameters: Parameters | FactoredScales) -> Parameters:
    return (parameters.scales(), parameters.offsets()) if isinstance(parameters, FactoredScales) else parameters


def decode_floats(kind: BlockType, rows: U8) -> F32:
    """Rows of raw bytes of any type as float32 [n, k]."""
    if not kind.is_float:
        return decode(kind, rows).floats()
    values = np.ascontiguousarray(rows).view(kind.record)
    if kind.name == "BF16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)


def block_weights(kind: BlockType, rows: U8, packing: Packing = Packing.WIDE) -> BlockWeights:
    """Rows of raw bytes as input of `pack_blocks`. Codes are not unpacked, unless they come from a codebook."""
    blocks = np.ascontiguousarray(rows).view(kind.record)
    parameters = _parameters(kind, blocks)
    scales, offsets = (parameters, None) if isinstance(parameters, FactoredScales) else parameters
    has_offsets = parameters.has_offsets if isinstance(parameters, FactoredScales) else offsets is not None
    grid = Grid.over(kind.span, has_offsets, kind.table is not None)
    raw, block, nbytes, fields = rows, kind.block, kind.nbytes, tuple(_bit_field(kind, part) for part in kind.parts)
    if kind.codes is not None:
        raw, nbytes, fields = kind.codes(blocks).reshape(len(rows), -1), block, (BitField(0, 8, block),)
    return BlockWeights(
        raw, block, nbytes, fields, kind.group, scales, offsets, grid.table(kind.table), kind.width,
        kind.base - grid.centre, grid.stretch, grid.centre, kind.span, packing,
    )  # fmt: skip


def _codes(kind: BlockType, blocks: Blocks) -> U8:
    if kind.codes is not None:
        return kind.codes(blocks)
    low, *high = kind.parts
    codes = bits(blocks[low.name], low.width, low.run)
    for part in high:
        codes |= bits(blocks[part.name], part.width, part.run) << np.uint8(low.width)
    return codes


def _parameters(kind: BlockType, blocks: Blocks) -> Parameters | FactoredScales:
    if kind.parameters is None:
        raise ValueError(f"{kind.name} is a plain float type")
    parameters, n = kind.parameters(blocks), len(blocks)
    if isinstance(parameters, FactoredScales):
        return parameters.reshaped(n)
    scales, offsets = parameters
    return scales.reshape(n, -1), None if offsets is None else offsets.reshape(n, -1)


def _bit_field(kind: BlockType, part: Part) -> BitField:
    assert kind.record.fields is not None
    return BitField(kind.record.fields[part.name][1], part.width, part.run)


# ---- scales and offsets ----


def _d(b: Blocks) -> Parameters:
    return as_floats(b["d"]), None


def _d_and_m(b: Blocks) -> Parameters:
    return as_floats(b["d"]), as_floats(b["m"])


def _nibble_pairs(b: Blocks) -> FactoredScales:
    """Q2_K: a byte per group, its scale in the low nibble, its minimum in the high."""
    scales, mins = b["scales"] & np.uint8(15), b["scales"] >> np.uint8(4)
    return FactoredScales(b["d"], scales.view(np.int8), -b["dmin"], mins.view(np.int8), bits=4)


def _six_bits(b: Blocks) -> FactoredScales:
    """Q3_K: sixteen scales of 6 bits, the low nibbles in 8 bytes, the pairs of high bits in 4."""
    low, high = bits(b["scales"][..., :8], 4, 8), bits(b["scales"][..., 8:], 2, 4)
    return FactoredScales(b["d"], (low | (high << np.uint8(4))).view(np.int8) - np.int8(32))


_SIX, _NIBBLE, _TWO = np.uint32(0x3F3F3F3F), np.uint32(0x0F0F0F0F), np.uint32(0x30303030)


def _scales_and_mins(b: Blocks) -> FactoredScales:
    """Q4_K, Q5_K: eight scales and eight minima of 6 bits in 12 bytes. The first four scales are the low six bits of
    bytes 0-3, the first four minima those of bytes 4-7; the last four are the low (scales) and high (minima) nibbles of
    bytes 8-11, with the two top bits of bytes 0-3 and 4-7 above them. Four bytes are handled as one word."""
    first, second, nibbles = (np.ascontiguousarray(b["scales"][..., i]) for i in range(3))
    scales, mins = np.empty((2, *b.shape, 2), np.uint32)
    scales[..., 0], scales[..., 1] = first & _SIX, (nibbles & _NIBBLE) | (first >> 2 & _TWO)
    mins[..., 0], mins[..., 1] = second & _SIX, (nibbles >> 4 & _NIBBLE) | (second >> 2 & _TWO)
    return FactoredScales(b["d"], scales.view(np.int8), -b["dmin"], mins.view(np.int8))


def _d_times_scales(b: Blocks) -> FactoredScales:
    return FactoredScales(b["d"], b["scales"])


def _split_scales(b: Blocks) -> FactoredScales:
    """IQ4_XS: eight scales of 6 bits, nibbles in four bytes, the pairs of high bits in two."""
    high = b["scales_h"][..., None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    scales = (bits(b["scales_l"], 4, 1) | (high.astype(np.uint8) << np.uint8(4))).view(np.int8) - np.int8(32)
    return FactoredScales(b["d"], scales)


def _exponent(b: Blocks) -> Parameters:
    """MXFP4: 2^(e - 128), since the table holds the doubled FP4 values."""
    return np.ldexp(np.float32(1), b["e"].astype(np.int32) - 128)[..., None], None


def _e4m3(b: Blocks) -> Parameters:
    """NVFP4: four bits of exponent and three of mantissa for 16 weights. Halved, since the table is doubled. 127 is not
    a number; ggml reads it as 0."""
    exponents, mantissas = b["scales"].astype(np.int32) >> 3 & 15, b["scales"] & np.uint8(7)
    significands = np.where(exponents == 0, mantissas, mantissas + np.uint8(8)).astype(np.float32)
    scales = np.ldexp(significands, np.maximum(exponents, 1) - 11)
    return np.where(b["scales"] == 127, np.float32(0), scales), None


# ---- the types ----

_UNSIGNED_2, _SIGNED_3, _SIGNED_4, _UNSIGNED_4 = (tuple(range(*ends)) for ends in ((0, 4), (-4, 4), (-8, 8), (0, 16)))
_NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_SIGN, _SIGN_AND_TWO, _BASE_3 = (-1, 1), (-1, 0, 1, 2), (-1, 0, 1)
_IQ1 = (-7, 1, 9, 0, -9, -1, 7)
_IQ2, _IQ3_XXS, _IQ3_S = (
    tuple(sign * magnitude for sign in (1, -1) for magnitude in magnitudes)
    for magnitudes in ((8, 25, 43, 0), (4, 12, 20, 28, 36, 44, 52, 62), (1, 3, 5, 7, 9, 11, 13, 15))
)

_D, _DMIN, _M = ("d", "<f2"), ("dmin", "<f2"), ("m", "<f2")
_PAIR = np.dtype([("entries", "u1", 4), ("signs", "<u4")])


def _float(name: str, dtype: str) -> BlockType:
    return BlockType(name, 1, np.dtype(dtype))


def _type(
    name: str,
    block: int,
    group: int,
    values: tuple[int, ...] | range,
    record: list[Any],
    parts: list[Part],
    parameters: Callable[[Blocks], Parameters | FactoredScales],
    codes: Callable[[Blocks], U8] | None = None,
) -> BlockType:
    """values: a tuple is a table by code; a range is for codes of 5 bits and more, which need no table."""
    table = None if isinstance(values, range) else values
    span = (min(values), max(values))
    return BlockType(name, block, np.dtype(record), group, span, table, tuple(parts), parameters, codes)


def _qs(count: int) -> tuple[str, str, int]:
    return ("qs", "u1", count)


def _scales(count: int, dtype: str = "u1") -> tuple[str, str, int]:
    return ("scales", dtype, count)


def _qh(count: int) -> tuple[str, str, int]:
    return ("qh", "u1", count)


# By ggml's type number: weights of a block, weights of a group, values, record, fields with codes, parameters.
TYPES: dict[int, BlockType] = {
    0: _float("F32", "<f4"),
    1: _float("F16", "<f2"),
    2: _type("Q4_0", 32, 32, _SIGNED_4, [_D, _qs(16)], [Part("qs", 4, 16)], _d),
    3: _type("Q4_1", 32, 32, _UNSIGNED_4, [_D, _M, _qs(16)], [Part("qs", 4, 16)], _d_and_m),
    6: _type("Q5_0", 32, 32, range(-16, 16), [_D, _qh(4), _qs(16)], [Part("qs", 4, 16), Part("qh", 1, 1)], _d),
    7: _type("Q5_1", 32, 32, range(32), [_D, _M, _qh(4), _qs(16)], [Part("qs", 4, 16), Part("qh", 1, 1)], _d_and_m),
    8: _type("Q8_0", 32, 32, range(-127, 128), [_D, _qs(32)], [Part("qs", 8, 32)], _d),
    10: _type("Q2_K", 256, 16, _UNSIGNED_2, [_scales(16), _qs(64), _D, _DMIN], [Part("qs", 2, 32)], _nibble_pairs),
    11: _type("Q3_K", 256, 16, _SIGNED_3, [_qh(32), _qs(64), _scales(12), _D],
              [Part("qs", 2, 32), Part("qh", 1, 32)], _six_bits),
    12: _type("Q4_K", 256, 32, _UNSIGNED_4, [_D, _DMIN, _scales(3, "<u4"), _qs(128)],
              [Part("qs", 4, 32)], _scales_and_mins),
    13: _type("Q5_K", 256, 32, range(32), [_D, _DMIN, _scales(3, "<u4"), _qh(32), _qs(128)],
              [Part("qs", 4, 32), Part("qh", 1, 32)], _scales_and_mins),
    14: _type("Q6_K", 256, 16, range(-32, 32), [_qs(128), _qh(64), _scales(16, "i1"), _D],
              [Part("qs", 4, 64), Part("qh", 2, 32)], _d_times_scales),
    16: _type("IQ2_XXS", 256, 32, _IQ2, [_D, ("pairs", _PAIR, 8)], [], books.top_bits(-3), books.iq2_xxs_codes),
    17: _type("IQ2_XS", 256, 16, _IQ2, [_D, ("qs", "<u2", 32), _scales(8)], [], books.nibbles, books.iq2_xs_codes),
    18: _type("IQ3_XXS", 256, 32, _IQ3_XXS, [_D, _qs(64), ("signs", "<u4", 8)], [],
              books.top_bits(-2), books.iq3_xxs_codes),
    19: _type("IQ1_S", 256, 32, _IQ1, [_D, _qs(32), ("qh", "<u2", 8)], [], books.iq1_s_scales, books.iq1_s_codes),
    20: _type("IQ4_NL", 32, 32, _NONLINEAR, [_D, _qs(16)], [Part("qs", 4, 16)], _d),
    21: _type("IQ3_S", 256, 32, _IQ3_S, [_D, _qs(64), _qh(8), ("signs", "u1", 32), _scales(4)], [],
              books.odd_nibbles, books.iq3_s_codes),
    22: _type("IQ2_S", 256, 16, _IQ2, [_D, _qs(32), ("signs", "u1", 32), _qh(8), _scales(8)], [],
              books.nibbles, books.iq2_s_codes),
    23: _type("IQ4_XS", 256, 32, _NONLINEAR, [_D, ("scales_h", "<u2"), ("scales_l", "u1", 4), _qs(128)],
              [Part("qs", 4, 16)], _split_scales),
    29: _type("IQ1_M", 256, 16, _IQ1, [_qs(32), _qh(16), _scales(4, "<u2")], [], books.iq1_m_scales, books.iq1_m_codes),
    30: _float("BF16", "<u2"),
    34: _type("TQ1_0", 256, 256, _BASE_3, [_qs(48), _qh(4), _D], [], _d, books.tq1_0_codes),
    35: _type("TQ2_0", 256, 256, _SIGN_AND_TWO, [_qs(64), _D], [Part("qs", 2, 32)], _d),
    39: _type("MXFP4", 32, 32, _FP4_DOUBLED, [("e", "u1"), _qs(16)], [Part("qs", 4, 16)], _exponent),
    40: _type("NVFP4", 64, 16, _FP4_DOUBLED, [_scales(4), _qs(32)], [Part("qs", 4, 8)], _e4m3),
    41: _type("Q1_0", 128, 128, _SIGN, [_D, _qs(16)], [Part("qs", 1, 1)], _d),
    42: _type("Q2_0", 64, 64, _SIGN_AND_TWO, [_D, _qs(16)], [Part("qs", 2, 1)], _d),
}  # fmt: skip
WHOLE_NUMBERS = {26: _float("I32", "<i4"), 27: _float("I64", "<i8")}  # no weights, but lists of ids
NAMES: dict[str, BlockType] = {kind.name: kind for kind in TYPES.values()}
