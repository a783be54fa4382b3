"""ggml's block types: raw bytes to codes with a scale (and offset) per group, and those to integer weights.

`decode` says exactly what ggml defines: weight = scale * T[code] + offset. `row_integers` puts a row of such groups
on one 15-bit grid; what that costs stands in docs/design/checkpoints.md. Knows nothing of files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.formats.rounding import GRID_15
from surefoot.ops.arrays import F32, I8, U8
from surefoot.ops.weights import I16, IntegerWeights, WeightFormat

Blocks = NDArray[Any]  # structured: one record per block, [n, blocks]


@dataclass(frozen=True)
class AffineGroups:
    """Weights [n, k] in groups of columns: scale * T[code] + offset, scales and offsets [n, groups].

    T is the table of a 4-bit code, else the code itself, which then lies within `span`."""

    codes: I8
    group: int
    scales: F32
    offsets: F32 | None
    table: I8 | None
    span: tuple[int, int]

    def floats(self) -> F32:
        n, k = self.codes.shape
        values = (self.codes if self.table is None else self.table[self.codes]).astype(np.float32)
        values = values.reshape(n, -1, self.group) * self.scales[..., None]
        if self.offsets is not None:
            values += self.offsets[..., None]
        return values.reshape(n, k)


@dataclass(frozen=True)
class Groups:
    """What a block type's decoder finds: codes (any shape, [n, k] in order), scales and offsets [n, blocks, groups]."""

    codes: NDArray[np.uint8 | np.int8]
    scales: F32
    offsets: F32 | None = None


@dataclass(frozen=True)
class BlockType:
    """One of ggml's types. `block` weights share one record of bytes; plain floats have a block of 1 and no decoder."""

    name: str
    block: int
    record: np.dtype[Any]
    decode: Callable[[Blocks], Groups] | None = None
    group: int = 0
    values: tuple[int, ...] | None = None  # T, of codes of 4 bits and fewer
    span: tuple[int, int] = (0, 0)  # least and largest T[code]

    @property
    def nbytes(self) -> int:
        return self.record.itemsize

    @property
    def bits_per_weight(self) -> float:
        return self.nbytes * 8 / self.block


# ---- how the codes of each type lie in its record ----


def _bits(packed: U8, width: int, run: int) -> U8:
    """Bit fields of bytes [..., count], lowest first: each run of `run` bytes holds 8 / width runs of codes."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    runs = packed.reshape(*packed.shape[:-1], -1, 1, run)
    fields: U8 = (runs >> shifts) & np.uint8(2**width - 1)
    return fields.reshape(*packed.shape[:-1], -1)


def _f32(halves: NDArray[np.float16]) -> F32:
    return halves[..., None].astype(np.float32)


def _q4_0(b: Blocks) -> Groups:
    return Groups(_bits(b["qs"], 4, 16), _f32(b["d"]))


def _q4_1(b: Blocks) -> Groups:
    return Groups(_bits(b["qs"], 4, 16), _f32(b["d"]), _f32(b["m"]))


def _five_bits(b: Blocks) -> I8:
    high = np.unpackbits(b["qh"], axis=-1, bitorder="little")
    return (_bits(b["qs"], 4, 16) | (high << np.uint8(4))).view(np.int8)


def _q5_0(b: Blocks) -> Groups:
    return Groups(_five_bits(b) - np.int8(16), _f32(b["d"]))


def _q5_1(b: Blocks) -> Groups:
    return Groups(_five_bits(b), _f32(b["d"]), _f32(b["m"]))


def _q8_0(b: Blocks) -> Groups:
    """-128 has no place among our codes; ggml's own quantiser never writes it, and it is read as -127."""
    return Groups(np.maximum(b["qs"], np.int8(-127)), _f32(b["d"]))


def _q2_k(b: Blocks) -> Groups:
    scales = _f32(b["d"]) * (b["scales"] & np.uint8(15))
    return Groups(_bits(b["qs"], 2, 32), scales, -(_f32(b["dmin"]) * (b["scales"] >> np.uint8(4))))


def _q3_k(b: Blocks) -> Groups:
    """Sixteen scales of 6 bits: low nibbles in 8 bytes, pairs of high bits in 4."""
    low, high = _bits(b["scales"][..., :8], 4, 8), _bits(b["scales"][..., 8:], 2, 4)
    scales = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    return Groups(_bits(b["qs"], 2, 32) | (_bits(b["hmask"], 1, 32) << np.uint8(2)), _f32(b["d"]) * scales)


def _scales_and_mins(b: Blocks) -> tuple[F32, F32]:
    """Eight scales and eight minima of 6 bits in 12 bytes: 0-3 whole in bytes 0-3 and 4-7, whose top bits go with the
    nibbles of bytes 8-11 to 4-7."""
    first, second, nibbles = (b["scales"][..., i : i + 4] for i in (0, 4, 8))
    six, two = np.uint8(63), np.uint8(48)
    scales = np.concatenate([first & six, (nibbles & np.uint8(15)) | (first >> np.uint8(2) & two)], axis=-1)
    mins = np.concatenate([second & six, (nibbles >> np.uint8(4)) | (second >> np.uint8(2) & two)], axis=-1)
    return _f32(b["d"]) * scales, -(_f32(b["dmin"]) * mins)


def _q4_k(b: Blocks) -> Groups:
    return Groups(_bits(b["qs"], 4, 32), *_scales_and_mins(b))


def _q5_k(b: Blocks) -> Groups:
    return Groups(_bits(b["qs"], 4, 32) | (_bits(b["qh"], 1, 32) << np.uint8(4)), *_scales_and_mins(b))


def _q6_k(b: Blocks) -> Groups:
    codes = _bits(b["ql"], 4, 64) | (_bits(b["qh"], 2, 32) << np.uint8(4))
    return Groups(codes.view(np.int8) - np.int8(32), _f32(b["d"]) * b["scales"])


def _iq4_xs(b: Blocks) -> Groups:
    high = b["scales_h"][..., None] >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    scales = (_bits(b["scales_l"], 4, 1) | (high.astype(np.uint8) << np.uint8(4))).view(np.int8) - np.int8(32)
    return Groups(_bits(b["qs"], 4, 16), _f32(b["d"]) * scales)


def _mxfp4(b: Blocks) -> Groups:
    """The scale is 2^(e - 128), since the table holds the doubled FP4 values."""
    return Groups(_bits(b["qs"], 4, 16), np.ldexp(np.float32(1), b["e"].astype(np.int32) - 128)[..., None])


# IQ2_XXS: eight magnitudes per entry, two bits each, lowest first: 0, 1, 2 stand for 8, 25, 43.
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


def _iq2_xxs_book() -> U8:
    entries = np.frombuffer(bytes.fromhex(_IQ2_XXS_BOOK), ">u2")[:, None]
    return (entries >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)


def _parity_signs() -> U8:
    """Sign bits of eight weights from seven: the eighth makes their number even. Set as bit 3 of a code."""
    bits = np.arange(128)[:, None] >> np.arange(8) & 1
    bits[:, 7] = bits.sum(axis=1) & 1
    return (bits << 3).astype(np.uint8)


IQ2_XXS_BOOK, PARITY_SIGNS = _iq2_xxs_book(), _parity_signs()


def _iq2_xxs(b: Blocks) -> Groups:
    """Per 32 weights four entries of the book, then 4 x 7 bits of signs and 4 bits of scale."""
    signs = b["pairs"]["signs"]
    fields = signs[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & np.uint32(127)
    codes = IQ2_XXS_BOOK[b["pairs"]["entries"]] | PARITY_SIGNS[fields]
    scales = (signs >> np.uint32(28)).astype(np.float32)
    return Groups(codes, _f32(b["d"]) * (np.float32(0.5) + scales) * np.float32(0.25))


# ---- the types ----

_UNSIGNED_2, _SIGNED_3, _SIGNED_4, _UNSIGNED_4 = (tuple(range(*ends)) for ends in ((0, 4), (-4, 4), (-8, 8), (0, 16)))
_NONLINEAR_4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_SIGNED_MAGNITUDES = (8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0)

_D, _DMIN, _M = ("d", "<f2"), ("dmin", "<f2"), ("m", "<f2")
_SCALES_H = ("scales_h", "<u2")
_PAIR = np.dtype([("entries", "u1", 4), ("signs", "<u4")])


def _bytes(name: str, count: int) -> tuple[str, str, int]:
    return (name, "u1", count)


def _float(name: str, dtype: str) -> BlockType:
    return BlockType(name, 1, np.dtype(dtype))


def _four(
    name: str, block: int, group: int, values: tuple[int, ...], decode: Callable[[Blocks], Groups], *record: Any
) -> BlockType:
    return BlockType(name, block, np.dtype(list(record)), decode, group, values, (min(values), max(values)))


def _eight(
    name: str, block: int, group: int, span: tuple[int, int], decode: Callable[[Blocks], Groups], *record: Any
) -> BlockType:
    return BlockType(name, block, np.dtype(list(record)), decode, group, None, span)


# By ggml's own number.
TYPES: dict[int, BlockType] = {
    0: _float("F32", "<f4"),
    1: _float("F16", "<f2"),
    2: _four("Q4_0", 32, 32, _SIGNED_4, _q4_0, _D, _bytes("qs", 16)),
    3: _four("Q4_1", 32, 32, _UNSIGNED_4, _q4_1, _D, _M, _bytes("qs", 16)),
    6: _eight("Q5_0", 32, 32, (-16, 15), _q5_0, _D, _bytes("qh", 4), _bytes("qs", 16)),
    7: _eight("Q5_1", 32, 32, (0, 31), _q5_1, _D, _M, _bytes("qh", 4), _bytes("qs", 16)),
    8: _eight("Q8_0", 32, 32, (-127, 127), _q8_0, _D, ("qs", "i1", 32)),
    10: _four("Q2_K", 256, 16, _UNSIGNED_2, _q2_k, _bytes("scales", 16), _bytes("qs", 64), _D, _DMIN),
    11: _four("Q3_K", 256, 16, _SIGNED_3, _q3_k, _bytes("hmask", 32), _bytes("qs", 64), _bytes("scales", 12), _D),
    12: _four("Q4_K", 256, 32, _UNSIGNED_4, _q4_k, _D, _DMIN, _bytes("scales", 12), _bytes("qs", 128)),
    13: _eight("Q5_K", 256, 32, (0, 31), _q5_k, _D, _DMIN, _bytes("scales", 12), _bytes("qh", 32), _bytes("qs", 128)),
    14: _eight("Q6_K", 256, 16, (-32, 31), _q6_k, _bytes("ql", 128), _bytes("qh", 64), ("scales", "i1", 16), _D),
    16: _four("IQ2_XXS", 256, 32, _SIGNED_MAGNITUDES, _iq2_xxs, _D, ("pairs", _PAIR, 8)),
    20: _four("IQ4_NL", 32, 32, _NONLINEAR_4, _q4_0, _D, _bytes("qs", 16)),
    23: _four("IQ4_XS", 256, 32, _NONLINEAR_4, _iq4_xs, _D, _SCALES_H, _bytes("scales_l", 4), _bytes("qs", 128)),
    30: _float("BF16", "<u2"),
    39: _four("MXFP4", 32, 32, _FP4_DOUBLED, _mxfp4, ("e", "u1"), _bytes("qs", 16)),
}  # fmt: skip
NAMES: dict[str, BlockType] = {kind.name: kind for kind in TYPES.values()}


def decode(kind: BlockType, rows: U8) -> AffineGroups:
    """Rows of raw bytes [n, bytes of a row] of a block type that is not a plain float."""
    if kind.decode is None:
        raise ValueError(f"{kind.name} is a plain float type")
    n = len(rows)
    found = kind.decode(np.ascontiguousarray(rows).view(kind.record))
    table = None if kind.values is None else np.array([*kind.values, *[0] * (16 - len(kind.values))], np.int8)
    codes = found.codes.reshape(n, -1).view(np.int8)
    offsets = None if found.offsets is None else found.offsets.reshape(n, -1)
    return AffineGroups(codes, kind.group, found.scales.reshape(n, -1), offsets, table, kind.span)


def decode_floats(kind: BlockType, rows: U8) -> F32:
    """Rows of raw bytes of any type as float32 [n, k]."""
    if kind.decode is not None:
        return decode(kind, rows).floats()
    values = np.ascontiguousarray(rows).view(kind.record)
    if kind.name == "BF16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)


# ---- rows of groups on one integer grid ----


def row_integers(groups: AffineGroups) -> IntegerWeights:
    """The groups as ((t * M + 64) >> 7) + Z on a grid of 15 bits per row, t = stretch * (T[code] - centre).

    A row's unit is its largest possible weight / 16256. The stretch makes M fit int16 for every such group; the centre
    is 0 where there are no offsets to take it up. Off by at most 1 unit, 1.4 with offsets."""
    low, high = groups.span
    centre = 0 if groups.offsets is None else (low + high + 1) // 2
    stretch = _stretch(high - low if groups.offsets is not None else 2 * max(-low, high))
    units = _row_units(groups)
    per_step = groups.scales / units[:, None]
    multipliers = _int16(per_step * np.float32(128 / stretch))
    offsets = None
    if groups.offsets is not None:
        offsets = _int16(groups.offsets / units[:, None] + np.float32(centre) * per_step)
    bits = 8 if groups.table is None else 4
    fmt = WeightFormat(bits, limbs=2, group=groups.group)
    if groups.table is None:
        codes = (groups.codes - np.int8(centre)) * np.int8(stretch)
        return IntegerWeights(fmt, codes, units, multipliers, offsets)
    table = ((groups.table - np.int8(centre)) * np.int8(stretch)).astype(np.int8)
    return IntegerWeights(fmt, groups.codes, units, multipliers, offsets, table)


def _stretch(span: int) -> int:
    """The least factor that keeps every multiplier within int16: a group may span the whole grid, 2 * 16256 units."""
    return -(-2 * GRID_15 * 128 // (32767 * span))


def _row_units(groups: AffineGroups) -> F32:
    ends = [groups.scales * np.float32(end) for end in groups.span]
    if groups.offsets is not None:
        ends = [end + groups.offsets for end in ends]
    largest = np.maximum(np.abs(ends[0]), np.abs(ends[1])).max(axis=1)
    if not np.isfinite(largest).all():
        raise ValueError("scales or offsets are infinite or not a number")
    # No subnormal units: a row of nothing but tiny weights may lose bits, never divide by zero.
    units: F32 = np.maximum(largest / np.float32(GRID_15), np.finfo(np.float32).tiny)
    return units


def _int16(values: F32) -> I16:
    return np.rint(values).astype(np.int16)
