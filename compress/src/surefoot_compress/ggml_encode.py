"""Encodes codes and parameters into ggml's blocks: the inverse of `ggml.decode`.

The parameters of a type are fields of its record (half-precision scales, packed 6-bit scales). `put_parameters` rounds
scales and offsets to values that the record can hold, which `ggml` then reads back. `put_codes` adds the codes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from surefoot.formats.ggml import BlockType
from surefoot.formats.ggml_fields import Blocks
from surefoot.ops.arrays import F32, U8

Put = Callable[[Blocks, F32, F32 | None], None]


def put_codes(kind: BlockType, blocks: Blocks, codes: U8) -> None:
    """Store codes [n, blocks, block] as they are in the file: 8-bit codes as signed bytes."""
    num_stored = 0  # bits of each code
    for part in kind.parts:
        blocks[part.name] = _packed(codes >> np.uint8(num_stored) & np.uint8(2**part.width - 1), part.width, part.run)
        num_stored += part.width


def put_parameters(kind: BlockType, blocks: Blocks, scales: F32, offsets: F32 | None) -> None:
    """Store the nearest parameters that the type can hold; scales and offsets are [n, blocks, groups of a block]."""
    if kind.name not in PUT:
        raise ValueError(f"{kind.name} is not written; choose one of {', '.join(PUT)}")
    PUT[kind.name](blocks, scales, offsets)


def _packed(fields: U8, width: int, run: int) -> U8:
    if width == 8:
        return fields
    runs = fields.reshape(*fields.shape[:-1], -1, 8 // width, run)
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    joined: U8 = np.bitwise_or.reduce(runs << shifts, axis=-2)
    return joined.reshape(*fields.shape[:-1], -1)


def _d(b: Blocks, scales: F32, _: F32 | None) -> None:
    b["d"] = scales[..., 0]


def _d_and_m(b: Blocks, scales: F32, offsets: F32 | None) -> None:
    assert offsets is not None
    b["d"], b["m"] = scales[..., 0], offsets[..., 0]


def _multiples(b: Blocks, field: str, values: F32, low: int, high: int) -> NDArray[np.int32]:
    """The values as whole multiples of a common half-precision unit, which is written to the field."""
    ends = values.max(axis=-1) / high
    if low < 0:
        # The unit's sign is chosen so that the largest value becomes `low`, the longer end of the range.
        at = np.abs(values).argmax(axis=-1)[..., None]
        ends = np.take_along_axis(values, at, axis=-1)[..., 0] / low
    b[field] = ends
    unit = b[field].astype(np.float32)[..., None]
    counts = np.rint(np.divide(values, unit, out=np.zeros_like(values), where=unit != 0))
    return np.clip(counts, low, high).astype(np.int32)


def _six_bit_pairs(b: Blocks, scales: F32, offsets: F32 | None) -> None:
    """Q4_K, Q5_K: see ggml._scales_and_mins."""
    assert offsets is not None
    s = _multiples(b, "d", scales, 0, 63).astype(np.uint8)
    m = _multiples(b, "dmin", -offsets, 0, 63).astype(np.uint8)
    words = np.empty((*b.shape, 12), np.uint8)
    words[..., 0:4] = s[..., :4] | (s[..., 4:] >> 4 << 6)
    words[..., 4:8] = m[..., :4] | (m[..., 4:] >> 4 << 6)
    words[..., 8:12] = s[..., 4:] & 15 | (m[..., 4:] & 15) << 4
    b["scales"] = words.view("<u4")


def _nibble_pairs(b: Blocks, scales: F32, offsets: F32 | None) -> None:
    assert offsets is not None
    s, m = _multiples(b, "d", scales, 0, 15), _multiples(b, "dmin", -offsets, 0, 15)
    b["scales"] = (s | m << 4).astype(np.uint8)


def _signed_six_bits(b: Blocks, scales: F32, _: F32 | None) -> None:
    """Q3_K: low nibbles of scales + 32 in 8 bytes, pairs of high bits in 4."""
    s = (_multiples(b, "d", scales, -32, 31) + 32).astype(np.uint8)
    b["scales"] = np.concatenate([_packed(s & np.uint8(15), 4, 8), _packed(s >> np.uint8(4), 2, 4)], axis=-1)


def _bytes(b: Blocks, scales: F32, _: F32 | None) -> None:
    b["scales"] = _multiples(b, "d", scales, -128, 127)


def _split_scales(b: Blocks, scales: F32, _: F32 | None) -> None:
    """IQ4_XS: nibbles in four bytes, pairs of high bits in two."""
    s = (_multiples(b, "d", scales, -32, 31) + 32).astype(np.uint8)
    b["scales_l"] = _packed(s & np.uint8(15), 4, 1)
    b["scales_h"] = (s.astype(np.uint16) >> 4 << np.arange(0, 16, 2, dtype=np.uint16)).sum(axis=-1)


def _exponent(b: Blocks, scales: F32, _: F32 | None) -> None:
    """MXFP4: the nearest power of two of a scale, whose table is doubled."""
    b["e"] = np.clip(np.rint(np.log2(np.maximum(scales[..., 0], 2.0**-120))) + 128, 0, 254)


PUT: dict[str, Put] = {
    "Q4_0": _d, "Q4_1": _d_and_m, "Q5_0": _d, "Q5_1": _d_and_m, "Q8_0": _d, "IQ4_NL": _d,
    "Q2_K": _nibble_pairs, "Q3_K": _signed_six_bits, "Q4_K": _six_bit_pairs, "Q5_K": _six_bit_pairs,
    "Q6_K": _bytes, "IQ4_XS": _split_scales, "MXFP4": _exponent,
}  # fmt: skip
