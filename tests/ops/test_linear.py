"""The integer matmul against its oracle: every format, both activation forms, odd shapes, any split of the rows."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.formats import round_to
from surefoot.ops import (
    ActivationForm,
    Activations,
    Backend,
    IntegerWeights,
    OpError,
    WeightFormat,
    embed,
    linear,
    linear_experts,
    pack,
)
from surefoot.ops.weights import dequantise, expand
from tests.ops.linear import aligned, random_rows, random_weights, same_bits
from tests.oracle import activations as oracle_activations
from tests.oracle import linear as oracle

quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
groups = st.sampled_from([16, 32, 64, 128, 192])
formats = st.one_of(
    st.just(WeightFormat(8, 1)),
    st.builds(WeightFormat, st.just(8), st.just(2), groups),
    st.builds(WeightFormat, st.just(4), st.sampled_from([1, 2]), groups),
)
forms = st.sampled_from([ActivationForm(2), ActivationForm(1, 128), ActivationForm(1, 64), ActivationForm(1, 0)])
row_counts = st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 33, 47, 64, 70]))


def largest_rows(rng: np.random.Generator, rows: int, k: int) -> Activations:
    """Two-limb rows at the ends of their range."""
    return oracle_activations.quantise(rng.choice([-1.0, 1.0], (rows, k)).astype(np.float32), ActivationForm(2))


@quick
@given(
    rows=row_counts, n=st.integers(1, 100), k=st.one_of(st.integers(1, 400), st.sampled_from([650, 1100])),
    fmt=formats, form=forms,
    extras=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_linear_equals_oracle(
    backends: list[Backend], rows: int, n: int, k: int, fmt: WeightFormat, form: ActivationForm,
    extras: tuple[bool, bool], seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, fmt, n, k)
    x = aligned(random_rows(rng, rows, k, form))
    bias = rng.standard_normal(n).astype(np.float32) if extras[0] else None
    residual = rng.standard_normal((rows, n)).astype(np.float32) if extras[1] else None
    want = oracle.linear(x, weights, bias, residual)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights), bias, residual), want)


@pytest.mark.parametrize(
    "form",
    [ActivationForm(2), ActivationForm(1, 128), ActivationForm(1)],
    ids=["two limbs", "one limb", "one limb and scale"],
)
@pytest.mark.parametrize(
    "fmt", [WeightFormat(8, 1), WeightFormat(8, 2, 32), WeightFormat(4, 1, 32), WeightFormat(4, 2, 32)]
)
def test_deep_and_many_rows(backends: list[Backend], fmt: WeightFormat, form: ActivationForm) -> None:
    """Sizes with several chunks of columns, several blocks of rows and full tasks of panels."""
    rng = np.random.default_rng(1)
    weights = random_weights(rng, fmt, 300, 2500)
    x = aligned(random_rows(rng, 531, 2500, form))
    want = oracle.linear(x, weights)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights)), want)


@pytest.mark.parametrize("rows", range(3, 27))
def test_groups_of_rows_of_one_limb(backends: list[Backend], rows: int) -> None:
    """Up to twelve rows are multiplied at once: every way in which rows can be split."""
    rng = np.random.default_rng(rows)
    weights = random_weights(rng, WeightFormat(8, 1), 40, 100)
    x = aligned(random_rows(rng, rows, 100, ActivationForm(1)))
    want = oracle.linear(x, weights)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights)), want)


@pytest.mark.parametrize("group", [16, 64])
@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("rows", range(1, 14))
def test_few_rows_of_codes_that_count(backends: list[Backend], rows: int, limbs: int, group: int) -> None:
    """Small row counts have kernels of their own. Weights and rows are at the ends of their range."""
    rng = np.random.default_rng(rows)
    n, k = 75, 1500
    fmt = WeightFormat(4, limbs, group)
    shape = (n, fmt.num_groups(k))
    scales = rng.choice([0, 1, 15] if limbs == 1 else [-1000, 1, 1000], shape).astype(np.int16)
    offsets = rng.choice([-7, 0, 7], shape).astype(np.int16)
    codes = rng.choice([0, 7, 8, 15], (n, k)).astype(np.int8)
    row_scales = rng.standard_normal(n).astype(np.float32)
    weights = IntegerWeights(fmt, codes, row_scales, scales, offsets, np.arange(-8, 8).astype(np.int8))
    x = aligned(largest_rows(rng, rows, k))
    want = oracle.linear(x, weights)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights)), want)


@pytest.mark.parametrize(
    "fmt", [WeightFormat(8, 1), WeightFormat(8, 2, 32), WeightFormat(4, 1, 32), WeightFormat(4, 2, 16)]
)
@pytest.mark.parametrize("rows", [1, 5, 16, 17, 25, 31, 32, 33])
def test_residual_in_place(backends: list[Backend], rows: int, fmt: WeightFormat) -> None:
    """With any kernel, each output is added to the residual once."""
    rng = np.random.default_rng(rows)
    weights = random_weights(rng, fmt, 70, 700)
    x = aligned(random_rows(rng, rows, 700, ActivationForm(2)))
    before = rng.standard_normal((rows, 70)).astype(np.float32)
    want = oracle.linear(x, weights, None, before)
    for backend in backends:
        y = before.copy()
        linear(backend, x, pack(backend, weights), residual=y, out=y)
        assert same_bits(y, want)


@pytest.mark.parametrize("table", [np.arange(-8, 8), np.arange(16), np.array([127] * 8 + [-127] * 8)], ids=str)
@pytest.mark.parametrize("group", [16, 32, 64])
@pytest.mark.parametrize("rows", [1, 4, 9, 20])
def test_largest_sums(backends: list[Backend], table: np.ndarray, group: int, rows: int) -> None:
    """With the largest weights and activations of equal sign, no sum overflows."""
    rng = np.random.default_rng(3)
    n, k = 40, 5000
    x = aligned(largest_rows(rng, rows, k))
    signs = np.sign(x.values[0, 0, :k])
    largest, smallest = int(np.argmax(table)), int(np.argmin(table))
    codes = np.where(signs > 0, largest, smallest).astype(np.int8)[None].repeat(n, axis=0)
    fmt = WeightFormat(4, 2, group)
    # As large as both ends of the table allow, around their middle.
    middle, width = (int(table.max()) + int(table.min())) / 2, (int(table.max()) - int(table.min())) / 2
    scale = int(16319 / width)
    offset = round(-middle * scale)
    shape = (n, fmt.num_groups(k))
    weights = IntegerWeights(
        fmt, codes, np.ones(n, np.float32), np.full(shape, scale, np.int16), np.full(shape, offset, np.int16),
        table.astype(np.int8),
    )  # fmt: skip
    want = oracle.linear(x, weights)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights)), want)


@pytest.mark.parametrize("columns", [8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_sums_at_the_end_of_int32(backends: list[Backend], columns: int, excess: int) -> None:
    """Sums over some columns just below and above 2^31: however many a kernel adds up in an int32, none wraps."""
    rows, n, k = 9, 40, 640
    most = (2**31 // 16319) // columns + excess  # times the largest weight, over so many columns
    numbers = np.full((rows, k), min(most, 16256), np.float32)
    numbers[:, 620] = 16256  # sets the scale
    numbers *= np.where(np.arange(rows) % 2, -1, 1)[:, None]
    x = aligned(oracle_activations.quantise(numbers, ActivationForm(2)))
    fmt = WeightFormat(8, 2, 32)
    weights = IntegerWeights(
        fmt, np.full((n, k), 127, np.int8), np.ones(n, np.float32), np.full((n, fmt.num_groups(k)), 16447, np.int16)
    )
    want = oracle.linear(x, weights)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights)), want)


@pytest.mark.parametrize("group", [16, 64])
@pytest.mark.parametrize("rows", [1, 4, 9, 49])
def test_largest_sums_of_8_bit_codes(backends: list[Backend], group: int, rows: int) -> None:
    """The same for 8-bit codes in groups."""
    rng = np.random.default_rng(4)
    n, k = 40, 5000
    x = aligned(largest_rows(rng, rows, k))
    codes = (127 * np.sign(x.values[0, 0, :k]).astype(np.int8))[None].repeat(n, axis=0)
    fmt = WeightFormat(8, 2, group)
    scales = np.full((n, fmt.num_groups(k)), 16447, np.int16)  # (127 * 16447 + 64) >> 7 is the largest weight, 16319
    weights = IntegerWeights(fmt, codes, np.ones(n, np.float32), scales)
    want = oracle.linear(x, weights)
    for backend in backends:
        assert same_bits(linear(backend, x, pack(backend, weights)), want)


def test_two_limbs_by_two_are_rounded_once() -> None:
    """The oracle equals exact integer arithmetic with one rounding."""
    rng = np.random.default_rng(2)
    weights, x = random_weights(rng, WeightFormat(8, 2, 32), 3, 700), random_rows(rng, 2, 700, ActivationForm(2))
    got = oracle.linear(x, weights)
    w = expand(weights)
    for row, output in np.ndindex(2, 3):
        integers = 128 * x.values[row, 0, :700].astype(int) + x.values[row, 1, :700]
        total = sum(int(a) * int(b) for a, b in zip(integers, w[output], strict=True))
        assert got[row, output] == np.float32(total) * (x.scales[row, 0] * weights.row_scales[output])


@quick
@given(rows=st.integers(2, 40), fmt=formats, form=forms, seed=st.integers(0, 2**32 - 1))
def test_a_row_does_not_see_its_company(
    backends: list[Backend], rows: int, fmt: WeightFormat, form: ActivationForm, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    backend = backends[1]
    w = pack(backend, random_weights(rng, fmt, 70, 200))
    x = aligned(random_rows(rng, rows, 200, form))
    together = linear(backend, x, w)
    order = rng.permutation(rows)[: rng.integers(1, rows + 1)]
    some = aligned(Activations(x.values[order], x.scales[order], x.cols, x.form))
    assert same_bits(linear(backend, some, w), together[order])


@quick
@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=6), fmt=formats, form=forms, seed=st.integers(0, 2**32 - 1)
)
def test_experts_equal_oracle(
    backends: list[Backend], counts: list[int], fmt: WeightFormat, form: ActivationForm, seed: int
) -> None:
    if sum(counts) == 0:
        return
    rng = np.random.default_rng(seed)
    experts = [random_weights(rng, fmt, 40, 100) for _ in counts]
    if any((e.offsets is None) != (experts[0].offsets is None) for e in experts):
        return
    x = aligned(random_rows(rng, sum(counts), 100, form))
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    biases = [rng.standard_normal(40).astype(np.float32) for _ in counts]
    want = oracle.linear_experts(x, experts, starts, biases)
    for backend in backends:
        packed = [pack(backend, expert) for expert in experts]
        assert same_bits(linear_experts(backend, x, packed, starts, biases), want)


@pytest.mark.parametrize(
    "fmt", [WeightFormat(8, 1), WeightFormat(8, 2, 32), WeightFormat(4, 1, 32), WeightFormat(4, 2, 32)]
)
def test_rounding_is_close(fmt: WeightFormat) -> None:
    """The dequantised matrix of each format is as close to the float matrix as its step allows."""
    w = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    error = np.abs(dequantise(round_to(fmt, w)) - w)
    step = {(8, 1): 1 / 127, (8, 2): 1 / 127, (4, 1): 1.2 / 8, (4, 2): 1 / 7.5}[fmt.bits, fmt.limbs]
    assert (error.max(axis=1) <= 0.5001 * step * np.abs(w).max(axis=1)).all()


@quick
@given(fmt=formats, n=st.integers(1, 80), k=st.integers(1, 200), seed=st.integers(0, 2**32 - 1))
def test_rows_of_a_packed_table(backends: list[Backend], fmt: WeightFormat, n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, fmt, n, k)
    ids = rng.integers(0, n, 5)
    want = dequantise(weights)[ids] * np.float32(0.3)
    for backend in backends:
        assert same_bits(embed(backend, ids, pack(backend, weights), 0.3), want)


def test_weights_that_do_not_fit_are_refused(backends: list[Backend]) -> None:
    wide = IntegerWeights(
        WeightFormat(4, 1, 32), np.full((3, 32), 15, np.int8), np.ones(3, np.float32), np.full((3, 1), 20, np.int16),
        np.zeros((3, 1), np.int16), np.arange(-8, 8).astype(np.int8),
    )  # fmt: skip
    with pytest.raises(OpError, match="outside"):
        pack(backends[0], wide)


def test_every_entry_of_a_wide_table_must_fit(backends: list[Backend]) -> None:
    """Entries that no code uses are checked too."""
    shape = np.ones((3, 1), np.int16)
    fmt, codes, rows = WeightFormat(4, 2, 32), np.full((3, 32), 8, np.int8), np.ones(3, np.float32)
    table = np.arange(-8, 8).astype(np.int8)
    pack(backends[0], IntegerWeights(fmt, codes, rows, 2039 * shape, 0 * shape, table))
    with pytest.raises(OpError, match="outside"):
        pack(backends[0], IntegerWeights(fmt, codes, rows, 2040 * shape, 0 * shape, table))


def test_foreign_bytes_are_not_weights(backends: list[Backend]) -> None:
    rng = np.random.default_rng(0)
    x = aligned(random_rows(rng, 1, 64, ActivationForm(2)))
    w = pack(backends[0], random_weights(rng, WeightFormat(8, 1), 32, 64))
    w.data[0] ^= 1
    with pytest.raises(OpError, match="another layout"):
        linear(backends[0], x, w)
