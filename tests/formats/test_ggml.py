"""Every ggml type against the gguf package's own reading of the same bytes; two types that it lacks against ours."""

import functools
import itertools

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.formats import ggml, row_integers
from surefoot.ops import (
    ActivationForm,
    Backend,
    IntegerWeights,
    OpError,
    PackedWeights,
    embed,
    empty_packed,
    linear,
    pack,
    pack_blocks,
    quantise,
    supported_variants,
)
from surefoot.ops.arrays import F32, U8
from surefoot.ops.weights import Packing, dequantise, expand
from tests.oracle.linear import linear as oracle_linear

QUANTISED = [kind for kind in ggml.TYPES.values() if not kind.is_float]
# Of which neither codes nor scales take more bits in memory than in the file, or hardly more.
NARROW = [
    ggml.NAMES[name]
    for name in ("Q1_0", "Q2_0", "Q2_K", "Q3_K", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "IQ4_XS", "TQ2_0")
]
FLOATS = [kind for kind in ggml.TYPES.values() if kind.is_float]
UNIT = 1 / 16256
# The largest |t| (of stretched and centred 8-bit codes, or of a centred table's entries), the steps per unit to which
# multipliers are rounded, and whether there are offsets.
LARGEST = {
    "Q5_0": (80, 128, False), "Q5_1": (80, 128, True), "Q5_K": (80, 128, True), "Q6_K": (96, 128, False),
    "Q8_0": (127, 128, False), "Q4_0": (8, 1, False), "Q4_1": (8, 1, True), "Q4_K": (8, 1, True),
    "Q2_K": (2, 1, True), "Q3_K": (4, 1, False), "IQ2_XXS": (43, 1, False), "IQ4_NL": (127, 1, False),
    "IQ4_XS": (127, 1, False), "MXFP4": (12, 1, False), "NVFP4": (12, 1, False), "IQ2_XS": (43, 1, False),
    "IQ2_S": (43, 1, False), "IQ3_XXS": (62, 1, False), "IQ3_S": (15, 1, False), "IQ1_S": (9, 1, False),
    "IQ1_M": (9, 1, False), "TQ1_0": (1, 1, False), "TQ2_0": (2, 1, False), "Q1_0": (1, 1, False),
    "Q2_0": (2, 1, False),
}  # fmt: skip
# Types that the gguf package does not know: weights and bytes of a block, bits of a code, the smallest value and the
# steps between values. The half-precision scale comes first, then the codes in order, the lowest bits first.
UNKNOWN_TO_GGUF = {"Q1_0": (128, 18, 1, -1, 2), "Q2_0": (64, 18, 2, -1, 1)}


def roundings(kind: ggml.BlockType) -> tuple[float, int]:
    """The largest rounding error of a multiplier in units per t, and the number of other errors of half a unit: one for
    the product of an 8-bit code, one for an offset."""
    _, fraction, with_offsets = LARGEST[kind.name]
    return 0.5 / fraction, (fraction > 1) + with_offsets


def worst_units(kind: ggml.BlockType) -> float:
    """The largest error of an integer in units, with a margin for float32 arithmetic."""
    per_t, halves = roundings(kind)
    return LARGEST[kind.name][0] * per_t + 0.5 * halves + 0.01


def expected_units(kind: ggml.BlockType, t: F32) -> float:
    """The rms error if rounding errors are uniformly distributed. (MXFP4's are not: all powers of two are off by a
    third.)"""
    per_t, halves = roundings(kind)
    return float(np.sqrt((per_t**2 * (t**2).mean() + 0.25 * halves) / 3))


def reference(kind: ggml.BlockType, rows: U8) -> F32:
    if kind.name in UNKNOWN_TO_GGUF:
        _, nbytes, width, lowest, step = UNKNOWN_TO_GGUF[kind.name]
        records = rows.reshape(-1, nbytes)
        scales = np.ascontiguousarray(records[:, :2]).view(np.float16).astype(np.float32)
        digits = np.unpackbits(records[:, 2:], axis=1, bitorder="little").reshape(len(records), -1, width)
        codes = digits @ (1 << np.arange(width))
        return (scales * (lowest + step * codes).astype(np.float32)).reshape(len(rows), -1)
    return quants.dequantize(rows, gguf.GGMLQuantizationType[kind.name])


@functools.cache
def backend(variant: str, threads: int) -> Backend:
    return Backend(variant, threads)


def half(rng: np.random.Generator, count: int, largest: float = 0.1) -> U8:
    return rng.uniform(-largest, largest, count).astype(np.float16).view(np.uint8).reshape(count, 2)


def random_rows(kind: ggml.BlockType, rng: np.random.Generator, n: int, blocks: int) -> U8:
    """Random bytes with finite scales."""
    records = rng.integers(0, 256, (n * blocks, kind.nbytes), np.uint8)
    for name in ("d", "dmin", "m"):
        if kind.record.names and name in kind.record.names:
            at = kind.record.fields[name][1]  # type: ignore[index]
            records[:, at : at + 2] = half(rng, len(records))
    if kind.name == "MXFP4":
        records[:, 0] = rng.integers(100, 127, len(records))
    if kind.name == "IQ1_M":  # the sign and the exponent's high bits, in the top nibble of the last word
        records[:, -1] = records[:, -1] & 15 | rng.choice(np.array([16, 32, 144, 160], np.uint8), len(records))
    if kind.name == "Q8_0":
        records[:, 2:][records[:, 2:] == 128] = 0
    return records.reshape(n, -1)


def quantised_rows(kind: ggml.BlockType, rng: np.random.Generator, n: int, blocks: int) -> U8:
    """Normal weights with a few outliers, quantised by gguf; random rows if gguf has no quantiser for the type."""
    weights = rng.standard_normal((n, blocks * kind.block)).astype(np.float32)
    weights[rng.random(weights.shape) < 0.002] *= 8
    if kind.name in UNKNOWN_TO_GGUF:
        return random_rows(kind, rng, n, blocks)
    try:
        return quants.quantize(weights, gguf.GGMLQuantizationType[kind.name]).view(np.uint8)
    except NotImplementedError:
        return random_rows(kind, rng, n, blocks)


def bound(kind: ggml.BlockType, rows: U8) -> F32:
    """The largest weight that the groups of each row could encode."""
    groups = ggml.decode(kind, rows)
    offsets = 0 if groups.offsets is None else groups.offsets
    return np.max([np.abs(groups.scales * np.float32(end) + offsets) for end in groups.span], axis=(0, 2))


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5), blocks=st.integers(1, 4))
@settings(max_examples=25)
def test_groups_are_what_ggml_defines(kind: ggml.BlockType, seed: int, n: int, blocks: int) -> None:
    rows = random_rows(kind, np.random.default_rng(seed), n, blocks)
    groups = ggml.decode(kind, rows)
    assert groups.codes.shape == (n, blocks * kind.block)
    assert groups.scales.shape == (n, blocks * kind.block // groups.group)
    assert np.array_equal(groups.floats(), reference(kind, rows))


@pytest.mark.parametrize("make", [random_rows, quantised_rows])
@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_integers_lie_within_a_unit(kind: ggml.BlockType, make: type[random_rows]) -> None:  # type: ignore[valid-type]
    rows = make(kind, np.random.default_rng(7), 64, 8)
    weights = row_integers(ggml.decode(kind, rows))
    want = reference(kind, rows).astype(np.float64)
    units = np.abs(dequantise(weights) - want) / (bound(kind, rows)[:, None] * UNIT)
    t = (weights.codes if weights.table is None else weights.table[weights.codes]).astype(np.float32)
    assert np.abs(t).max() <= LARGEST[kind.name][0]
    assert units.max() <= worst_units(kind)
    assert np.sqrt((units**2).mean()) <= 1.2 * expected_units(kind, t)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_integers_fit_their_limbs(kind: ggml.BlockType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(kind, rng, 4, 4)
    weights = row_integers(ggml.decode(kind, rows))
    assert np.abs(expand(weights)).max() <= 16256 + worst_units(kind)
    if weights.table is not None and weights.scales is not None:
        entries = weights.table.astype(int)[:, None, None] * weights.scales
        entries += 0 if weights.offsets is None else weights.offsets
        assert np.abs(entries).max() <= 16319  # every entry of the table, used or not
    assert weights.codes.min() >= (0 if weights.table is not None else -127)
    assert (weights.offsets is None) == (ggml.decode(kind, rows).offsets is None)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 70), blocks=st.integers(1, 9))
@settings(max_examples=8)
def test_packed_blocks_are_packed_integers(kind: ggml.BlockType, seed: int, n: int, blocks: int) -> None:
    """Native packing of a file's bytes, whole or in parts, gives what decode, row_integers and pack give: the same
    bytes, or the same weights in fewer."""
    rows = random_rows(kind, np.random.default_rng(seed), n, blocks)
    weights = row_integers(ggml.decode(kind, rows))
    want, everything = pack(backend("portable", 1), weights), np.arange(n)
    for variant, threads, step in itertools.product(supported_variants(), (1, 2), (n, 32)):
        native = backend(variant, threads)
        assert np.array_equal(packed_blocks(native, kind, rows, step).data, want.data)
        for packing in (Packing.CODES, Packing.NARROW):
            packed = packed_blocks(native, kind, rows, step, packing)
            assert packed.nbytes < want.nbytes or packed.format == want.format
            assert np.array_equal(embed(native, everything, packed), embed(native, everything, want))


def packed_blocks(
    native: Backend, kind: ggml.BlockType, rows: U8, step: int, packing: Packing = Packing.WIDE
) -> PackedWeights:
    """The rows packed so many at a time."""
    packed = None
    for first in range(0, len(rows), step):
        weights = ggml.block_weights(kind, rows[first : first + step], packing)
        packed = packed or empty_packed(native, weights.format, len(rows), weights.shape[1], weights.has_offsets)
        pack_blocks(native, weights, packed, first)
    assert packed is not None
    return packed


def random_problem(kind: ggml.BlockType, n: int, columns: int) -> tuple[U8, IntegerWeights, F32]:
    """A file's rows, their integers, and 37 rows to multiply with them."""
    rng = np.random.default_rng(5)
    rows = random_rows(kind, rng, n, columns // kind.block)
    return rows, row_integers(ggml.decode(kind, rows)), rng.standard_normal((37, columns)).astype(np.float32)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_linear_multiplies_every_type(kind: ggml.BlockType) -> None:
    """The types have negative multipliers and groups of 16 with a table, which rounding of floats never gives."""
    rows, weights, x = random_problem(kind, 70, 1536)
    want = oracle_linear(quantise(backend("portable", 1), x), weights)
    for variant in supported_variants():
        native = backend(variant, 2)
        for packed in (pack(native, weights), *(packed_blocks(native, kind, rows, 64, packing) for packing in Packing)):
            for num_rows in (1, 2, 3, 5, 9, 16, 37):
                assert np.array_equal(linear(native, quantise(native, x[:num_rows]), packed), want[:num_rows])


@pytest.mark.parametrize("kind", NARROW, ids=lambda kind: kind.name)
@pytest.mark.parametrize("byte", [0, 255])
def test_sums_of_the_largest_narrow_codes_are_exact(kind: ggml.BlockType, byte: int) -> None:
    """Every code the first or the last one, every scale of a block the same, and rows of the largest number alone."""
    records = random_rows(kind, np.random.default_rng(2), 40, 2304 // kind.block).reshape(-1, kind.nbytes)
    for name, (field, at, *_) in (kind.record.fields or {}).items():
        if name not in ("d", "dmin", "m"):
            records[:, at : at + field.itemsize] = 127 if name == "scales" else byte
    rows = records.reshape(40, -1)
    weights = row_integers(ggml.decode(kind, rows))
    x = np.repeat(np.array([[1], [-1], [1e-3], [1]], np.float32), rows.size // 40 // kind.nbytes * kind.block, axis=1)
    x[2, 7], x[3, ::2] = 1, 0.999
    want = oracle_linear(quantise(backend("portable", 1), x), weights)
    for variant, num_rows in itertools.product(supported_variants(), (1, 3, 4)):
        native = backend(variant, 2)
        packed = packed_blocks(native, kind, rows, 40, Packing.NARROW)
        assert np.array_equal(linear(native, quantise(native, x[:num_rows]), packed), want[:num_rows])


@pytest.mark.parametrize("kind", NARROW, ids=lambda kind: kind.name)
def test_linear_multiplies_narrow_types_by_one_limb(kind: ggml.BlockType) -> None:
    rows, weights, x = random_problem(kind, 40, 1024)
    for variant, form in itertools.product(supported_variants(), (ActivationForm(1), ActivationForm(1, 128))):
        native = backend(variant, 2)
        for num_rows in (1, 4, 37):
            activations = quantise(native, x[:num_rows], form)
            y = linear(native, activations, packed_blocks(native, kind, rows, 40, Packing.NARROW))
            assert np.array_equal(y, oracle_linear(activations, weights))


@pytest.mark.parametrize("kind", NARROW, ids=lambda kind: kind.name)
def test_memory_is_the_files(kind: ggml.BlockType) -> None:
    """Row scales take four bytes of a row, and the header 256."""
    n, k = 1024, 4096
    rows = np.zeros((n, k // kind.block * kind.nbytes), np.uint8)
    packed = packed_blocks(backend("portable", 2), kind, rows, n, Packing.NARROW)
    assert (packed.nbytes - 4 * n - 256) / rows.nbytes <= 1.04


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_plain_floats(kind: ggml.BlockType) -> None:
    weights = np.random.default_rng(3).standard_normal((3, 40)).astype(np.float32)
    rows = quants.quantize(weights, gguf.GGMLQuantizationType[kind.name]).view(np.uint8)
    assert np.array_equal(ggml.decode_floats(kind, rows), reference(kind, rows))


@pytest.mark.parametrize("kind", ggml.TYPES.values(), ids=lambda kind: kind.name)
def test_sizes_are_ggmls(kind: ggml.BlockType) -> None:
    sizes = {member.name: sizes for member, sizes in gguf.GGML_QUANT_SIZES.items()}
    known = sizes | {name: (block, nbytes) for name, (block, nbytes, *_) in UNKNOWN_TO_GGUF.items()}
    assert (kind.block, kind.nbytes) == known[kind.name]


def test_no_type_of_the_gguf_package_is_missing() -> None:
    """But those that hold activations, or integers that no matrix has."""
    others = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
    assert {kind.name for kind in gguf.GGMLQuantizationType} - others <= ggml.NAMES.keys()


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("name", "at"), [("Q8_0", 0), ("Q4_1", 0), ("Q4_K", 0), ("Q6_K", 208), ("Q2_K", 82)])
def test_a_scale_that_is_not_finite_is_refused(name: str, at: int, scale: float) -> None:
    kind = ggml.NAMES[name]
    rows = np.zeros((40, 3 * kind.nbytes), np.uint8)
    rows[39, at - kind.nbytes :][:2] = np.array([scale], np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="infinite or not a number"):
        row_integers(ggml.decode(kind, rows))
    weights = ggml.block_weights(kind, rows)
    packed = empty_packed(backend("portable", 1), weights.format, *weights.shape, weights.has_offsets)
    for variant in supported_variants():
        with pytest.raises(OpError, match="outside its range"):
            pack_blocks(backend(variant, 2), weights, packed)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_rows_of_zeros_stay_zero(kind: ggml.BlockType) -> None:
    rows = np.zeros((2, 2 * kind.nbytes), np.uint8)
    assert not expand(row_integers(ggml.decode(kind, rows))).any()
