"""ggml's types whose codes are not simply bits of the record: entries of a codebook with signs, and digits of base 3.

An entry has the magnitudes of four or eight weights, as indices into a type's list of magnitudes. A code is such an
index with the weight's sign above it: as bit 2 for three magnitudes, as bit 3 for eight. Weights of IQ1_S and IQ1_M are
scale * (t + delta) with t of -1, 0 or 1 and a delta of 1/8 or -1/8. Here they are scale / 8 * (8 t + 1) or (8 t - 1):
bit 2 of a code is the sign of delta.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.formats.ggml_fields import Blocks, bits, fields
from surefoot.ops.arrays import U8
from surefoot.ops.weights import FactoredScales


@cache
def _book(name: str) -> U8:
    """Indices of magnitudes [entries, weights of an entry], as in ggml's tables."""
    with files(__package__).joinpath("codebooks.npz").open("rb") as file:
        book: U8 = np.load(file, allow_pickle=False)[name]
    return book


@cache
def _parity_signs(bit: int) -> U8:
    """Signs of eight weights for each 7-bit field, as this bit of a code. The eighth sign bit is even parity."""
    signs = np.arange(128)[:, None] >> np.arange(8) & 1
    signs[:, 7] = signs.sum(axis=1) & 1
    return (signs << bit).astype(np.uint8)


def _entries(low: U8, high: NDArray[Any]) -> NDArray[np.uint16]:
    """Numbers of entries: low bytes, and the bits above them."""
    return low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8)


def _codes(name: str, entries: NDArray[Any], signs: U8) -> U8:
    """signs: as bits above the index of a magnitude, [n, blocks, ...]."""
    magnitudes = _book(name)[entries]
    codes: U8 = magnitudes.reshape(*entries.shape[:2], -1) | signs.reshape(*entries.shape[:2], -1)
    return codes


# ---- codes ----


def iq2_xxs_codes(b: Blocks) -> U8:
    """32 weights have four entries and 4 x 7 bits of signs."""
    return _codes("IQ2_XXS", b["pairs"]["entries"], _parity_signs(2)[fields(b["pairs"]["signs"], 7, 4)])


def iq2_xs_codes(b: Blocks) -> U8:
    """8 weights have an entry of 9 bits and 7 bits of signs."""
    return _codes("IQ2_XS", b["qs"] & np.uint16(511), _parity_signs(2)[b["qs"] >> np.uint16(9)])


def iq2_s_codes(b: Blocks) -> U8:
    return _codes("IQ2_S", _entries(b["qs"], bits(b["qh"], 2, 1)), bits(b["signs"], 1, 1) << np.uint8(2))


def iq3_xxs_codes(b: Blocks) -> U8:
    return _codes("IQ3_XXS", b["qs"], _parity_signs(3)[fields(b["signs"], 7, 4)])


def iq3_s_codes(b: Blocks) -> U8:
    return _codes("IQ3_S", _entries(b["qs"], bits(b["qh"], 1, 1)), bits(b["signs"], 1, 1) << np.uint8(3))


def iq1_s_codes(b: Blocks) -> U8:
    """32 weights have four entries, whose high bits are fields of a word. Its top bit is the sign of delta."""
    signs = np.repeat((b["qh"] >> np.uint16(15)).astype(np.uint8), 32, axis=-1)
    return _codes("IQ1", _entries(b["qs"], fields(b["qh"], 3, 4)), signs << np.uint8(2))


def iq1_m_codes(b: Blocks) -> U8:
    """8 weights have an entry, with three bits of a nibble above it. The nibble's top bit is the sign of delta."""
    nibbles = bits(b["qh"], 4, 1)
    signs = np.repeat(nibbles >> np.uint8(3), 8, axis=-1)
    return _codes("IQ1", _entries(b["qs"], nibbles & np.uint8(7)), signs << np.uint8(2))


def tq1_0_codes(b: Blocks) -> U8:
    """A byte is a fraction of 256, whose first five (of `qh`: four) digits of base 3 are the codes."""
    runs = ((b["qs"][..., :32], 5), (b["qs"][..., 32:], 5), (b["qh"], 4))
    return np.concatenate([_digits(packed, count) for packed, count in runs], axis=-1)


def _digits(packed: U8, count: int) -> U8:
    shifted = packed[..., None, :] * np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    return (shifted.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(*packed.shape[:-1], -1)


# ---- scales ----


def top_bits(power: int) -> Callable[[Blocks], FactoredScales]:
    """IQ2_XXS, IQ3_XXS: four bits above the signs of 32 weights."""

    def scales(b: Blocks) -> FactoredScales:
        words = b["pairs"]["signs"] if "pairs" in (b.dtype.names or ()) else b["signs"]
        return _odd(b["d"], words >> np.uint32(28), power)

    return scales


def nibbles(b: Blocks) -> FactoredScales:
    """IQ2_XS, IQ2_S: four bits for 16 weights."""
    return _odd(b["d"], bits(b["scales"], 4, 1), -3)


def odd_nibbles(b: Blocks) -> FactoredScales:
    """IQ3_S: four bits for 32 weights."""
    return _odd(b["d"], bits(b["scales"], 4, 1), 0)


def iq1_s_scales(b: Blocks) -> FactoredScales:
    return _odd(b["d"], b["qh"] >> np.uint16(12) & np.uint16(7), -3)


def iq1_m_scales(b: Blocks) -> FactoredScales:
    """Four words have four scales of three bits each, and above them a nibble each of the block's own scale."""
    nibbles = (b["scales"] >> np.uint16(12)) << np.arange(0, 16, 4, dtype=np.uint16)
    unit = np.bitwise_or.reduce(nibbles, axis=-1).view(np.float16)
    return _odd(unit, fields(b["scales"], 3, 4), -3)


def _odd(steps: NDArray[np.float16], scales: NDArray[Any], power: int) -> FactoredScales:
    """A scale is an odd number: 2 s + 1."""
    return FactoredScales(steps, (2 * scales + 1).astype(np.int8), power=power)
