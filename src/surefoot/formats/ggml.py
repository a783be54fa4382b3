"""ggml's block types: the bit layout of each, and the weights that the bits encode. Independent of files.

`decode` returns exactly what ggml defines: weight = scale * value + offset, with a value per code and a scale (and
offset) per group. `block_weights` passes the same to the native packer without unpacking codes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.formats.grid import AffineGroups, Grid
from surefoot.ops.arrays import F32, I8, U8
from surefoot.ops.weights import BitField, BlockWeights

Blocks = NDArray[Any]  # structured: one record per block, [n, blocks]
Parameters = tuple[F32, F32 | None]  # scales and offsets, [n, blocks, groups of a block]


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
    parameters: Callable[[Blocks], Parameters] | None = None  # reads scales and offsets
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
    def table(self) -> I8 | None:
        return None if self.values is None else np.array([*self.values, *[0] * (16 - len(self.values))], np.int8)


def decode(kind: BlockType, rows: U8) -> AffineGroups:
    """Decode rows of raw bytes [n, bytes of a row] of a type that is not a plain float."""
    blocks = np.ascontiguousarray(rows).view(kind.record)
    codes = _codes(kind, blocks).reshape(len(rows), -1).view(np.int8)
    if kind.values is None:
        # The kernels have no code -128. ggml's quantiser never writes it; it is read as -127.
        codes = np.maximum(codes + np.int8(kind.base), np.int8(-127))
    return AffineGroups(codes, kind.group, *_parameters(kind, blocks), kind.table, kind.span)


def decode_floats(kind: BlockType, rows: U8) -> F32:
    """Rows of raw bytes of any type as float32 [n, k]."""
    if not kind.is_float:
        return decode(kind, rows).floats()
    values = np.ascontiguousarray(rows).view(kind.record)
    if kind.name == "BF16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)


def block_weights(kind: BlockType, rows: U8) -> BlockWeights:
    """Rows of raw bytes as input of `pack_blocks`. Codes are not unpacked, unless they come from a codebook."""
    blocks = np.ascontiguousarray(rows).view(kind.record)
    scales, offsets = _parameters(kind, blocks)
    grid = Grid.over(kind.span, offsets is not None, kind.table is not None)
    raw, block, nbytes, fields = rows, kind.block, kind.nbytes, tuple(_bit_field(kind, part) for part in kind.parts)
    if kind.codes is not None:
        raw, nbytes, fields = kind.codes(blocks).reshape(len(rows), -1), block, (BitField(0, 8, block),)
    return BlockWeights(
        raw, block, nbytes, fields, kind.group, scales, offsets, grid.table(kind.table),
        kind.base - grid.centre, grid.stretch, grid.centre, kind.span,
    )  # fmt: skip


def _codes(kind: BlockType, blocks: Blocks) -> U8:
    if kind.codes is not None:
        return kind.codes(blocks)
    low, *high = kind.parts
    codes = _bits(blocks[low.name], low.width, low.run)
    for part in high:
        codes |= _bits(blocks[part.name], part.width, part.run) << np.uint8(low.width)
    return codes


def _parameters(kind: BlockType, blocks: Blocks) -> Parameters:
    if kind.parameters is None:
        raise ValueError(f"{kind.name} is a plain float type")
    scales, offsets = kind.parameters(blocks)
    return scales.reshape(len(blocks), -1), None if offsets is None else offsets.reshape(len(blocks), -1)


def _bit_field(kind: BlockType, part: Part) -> BitField:
    assert kind.record.fields is not None
    return BitField(kind.record.fields[part.name][1], part.width, part.run)


def _bits(packed: U8, width: int, run: int) -> U8:
    """The bit fields of bytes [..., count]: a run of `run` bytes has 8 / width runs of codes, the lowest bits first."""
    if width == 8:
        return packed
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    runs = packed.reshape(*packed.shape[:-1], -1, 1, run)
    fields: U8 = (runs >> shifts) & np.uint8(2**width - 1)
    return fields.reshape(*packed.shape[:-1], -1)


# ---- scales and offsets ----


def _f32(halves: NDArray[np.float16]) -> F32:
    return halves[..., None].astype(np.float32)


def _d(b: Blocks) -> Parameters:
    return _f32(b["d"]), None


def _d_and_m(b: Blocks) -> Parameters:
    return _f32(b["d"]), _f32(b["m"])


def _nibble_pairs(b: Blocks) -> Parameters:
    """Q2_K: a byte per group, its scale in the low nibble, its minimum in the high."""
    return _f32(b["d"]) * (b["scales"] & np.uint8(15)), -(_f32(b["dmin"]) * (b["scales"] >> np.uint8(4)))


def _six_bits(b: Blocks) -> Parameters:
    """Q3_K: sixteen scales of 6 bits, the low nibbles in 8 bytes, the pairs of high bits in 4."""
    low, high = _bits(b["scales"][..., :8], 4, 8), _bits(b["scales"][..., 8:], 2, 4)
    return _f32(b["d"]) * ((low | (high << np.uint8(4))).view(np.int8) - np.int8(32)), None


_SIX, _NIBBLE, _TWO = np.uint32(0x3F3F3F3F), np.uint32(0x0F0F0F0F), np.uint32(0x30303030)


def _scales_and_mins(b: Blocks) -> Parameters:
    """Q4_K, Q5_K: eight scales and eight minima of 6 bits in 12 bytes. The first four scales are the low six bits of
    bytes 0-3, the first four minima those of bytes 4-7; the last four are the low (scales) and high (minima) nibbles of
    bytes 8-11, with the two top bits of bytes 0-3 and 4-7 above them. Four bytes are handled as one word."""
    first, second, nibbles = (np.ascontiguousarray(b["scales"][..., i]) for i in range(3))
    scales, mins = np.empty((2, *b.shape, 2), np.uint32)
    scales[..., 0], scales[..., 1] = first & _SIX, (nibbles & _NIBBLE) | (first >> 2 & _TWO)
    mins[..., 0], mins[..., 1] = second & _SIX, (nibbles >> 4 & _NIBBLE) | (second >> 2 & _TWO)
    return _f32(b["d"]) * scales.view(np.uint8), _f32(b["dmin"]) * -mins.view(np.uint8).astype(np.float32)


def _d_times_scales(b: Blocks) -> Parameters:
    return _f32(b["d"]) * b["scales"], None


def _split_scales(b: Blocks) -> Parameters:
    """IQ4_XS: eight scales of 6 bits, nibbles in four bytes, the pairs of high bits in two."""
    high = b["scales_h"][..., None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    scales = (_bits(b["scales_l"], 4, 1) | (high.astype(np.uint8) << np.uint8(4))).view(np.int8) - np.int8(32)
    return _f32(b["d"]) * scales, None


def _exponent(b: Blocks) -> Parameters:
    """MXFP4: 2^(e - 128), since the table holds the doubled FP4 values."""
    return np.ldexp(np.float32(1), b["e"].astype(np.int32) - 128)[..., None], None


def _top_bits(b: Blocks) -> Parameters:
    """IQ2_XXS: four bits above the signs."""
    scales = (b["pairs"]["signs"] >> np.uint32(28)).astype(np.float32)
    return _f32(b["d"]) * (np.float32(0.5) + scales) * np.float32(0.25), None


# ---- IQ2_XXS's codes ----

# Eight magnitudes per entry, two bits each, lowest first: 0, 1, 2 stand for 8, 25, 43.
_IQ2_XXS_BOOK = (
    "0000000200050008000a00110014002000220028002a00410044005000580061006400800082008a00a20101010401100115014001840198"
    "020002020222028204010404041004210424044004420448046004810484049004a405000502050805200546056905800591060906100640"
    "068406a40800080508080814082808410844085008520888090409400a020a14100110041010102110401060108410901095110011081120"
    "1150115a1180122412451400140814201425144914801518156216001616180118041810184018811900190519a01a5120002002200a2044"
    "20612080208221292148220022022401240424102440245625002541256426902808282028942a4440014004401040184021402440404048"
    "4056406040814084409041004120416141804185420142104248425642684400440844204480449945124524460048014804481048404845"
    "49004958496149824a454a9050005008501150195020508050885104514251a4529154905492550a56015654580058115819586459405a08"
    "6004601060406068610061556218626064006405651065126584684280008002800a80418082810481188140821184018404841084158440"
    "8460850085468594860986408660880289048a11900490109024904090a1911691809245940094229444955198819920a002a050a085a109"
    "a200a418a850a904"
)


def _unpacked_book() -> U8:
    entries = np.frombuffer(bytes.fromhex(_IQ2_XXS_BOOK), ">u2")[:, None]
    return (entries >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)


def _parity_signs() -> U8:
    """Signs of eight weights for each 7-bit field, as bit 3 of a code. The eighth sign bit is even parity."""
    bits = np.arange(128)[:, None] >> np.arange(8) & 1
    bits[:, 7] = bits.sum(axis=1) & 1
    return (bits << 3).astype(np.uint8)


_MAGNITUDES, _SIGNS = _unpacked_book(), _parity_signs()


def _book_codes(b: Blocks) -> U8:
    """IQ2_XXS: 32 weights have four entries of the codebook and 4 x 7 bits of signs."""
    fields = b["pairs"]["signs"][..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & np.uint32(127)
    codes: U8 = _MAGNITUDES[b["pairs"]["entries"]] | _SIGNS[fields]
    return codes


# ---- the types ----

_UNSIGNED_2, _SIGNED_3, _SIGNED_4, _UNSIGNED_4 = (tuple(range(*ends)) for ends in ((0, 4), (-4, 4), (-8, 8), (0, 16)))
_NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_SIGNED_MAGNITUDES = (8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0)

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
    parameters: Callable[[Blocks], Parameters],
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
    16: _type("IQ2_XXS", 256, 32, _SIGNED_MAGNITUDES, [_D, ("pairs", _PAIR, 8)], [], _top_bits, _book_codes),
    20: _type("IQ4_NL", 32, 32, _NONLINEAR, [_D, _qs(16)], [Part("qs", 4, 16)], _d),
    23: _type("IQ4_XS", 256, 32, _NONLINEAR, [_D, ("scales_h", "<u2"), ("scales_l", "u1", 4), _qs(128)],
              [Part("qs", 4, 16)], _split_scales),
    30: _float("BF16", "<u2"),
    39: _type("MXFP4", 32, 32, _FP4_DOUBLED, [("e", "u1"), _qs(16)], [Part("qs", 4, 16)], _exponent),
}  # fmt: skip
NAMES: dict[str, BlockType] = {kind.name: kind for kind in TYPES.values()}
