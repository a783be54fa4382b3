"""Random rows and weights, and equality of bits."""

import numpy as np

from surefoot.ops import (
    ActivationForm,
    Activations,
    IntegerWeights,
    WeightFormat,
    empty_activations,
)
from tests.oracle import activations as oracle_activations


def random_table(rng: np.random.Generator, low: int, high: int) -> np.ndarray:
    """A table of consecutive values (which kernels need not look up), or any other table."""
    first = int(rng.integers(max(low, -20), min(high - 15, 5)))
    return (np.arange(first, first + 16) if rng.random() < 0.5 else rng.integers(low, high, 16)).astype(np.int8)


def random_weights(rng: np.random.Generator, fmt: WeightFormat, n: int, k: int) -> IntegerWeights:
    """Weights with codes, scales and offsets over the format's whole range, beyond the results of rounding."""
    shape = (n, fmt.num_groups(k))
    rows = rng.standard_normal(n).astype(np.float32)
    if fmt.bits == 8:
        codes = rng.integers(-127, 128, (n, k)).astype(np.int8)
        if fmt.limbs == 1:
            return IntegerWeights(fmt, codes, rows)
        scales = rng.integers(0, 8192, shape).astype(np.int16)
        offsets = rng.integers(-8000, 8000, shape).astype(np.int16) if rng.random() < 0.5 else None
        return IntegerWeights(fmt, codes, rows, scales, offsets)
    codes = rng.integers(0, 16, (n, k)).astype(np.int8)
    if fmt.limbs == 1:
        table = random_table(rng, -8, 8)
        return IntegerWeights(
            fmt,
            codes,
            rows,
            rng.integers(0, 16, shape).astype(np.int16),
            rng.integers(-7, 8, shape).astype(np.int16),
            table,
        )
    table = random_table(rng, -127, 128)
    offsets = rng.integers(-8000, 8000, shape).astype(np.int16) if rng.random() < 0.5 else None
    room = 16319 if offsets is None else 8319
    largest = room // np.abs(table.astype(int)).max()
    return IntegerWeights(fmt, codes, rows, rng.integers(-largest, largest + 1, shape).astype(np.int16), offsets, table)


def random_rows(rng: np.random.Generator, rows: int, k: int, form: ActivationForm) -> Activations:
    return oracle_activations.quantise(rng.standard_normal((rows, k)).astype(np.float32), form)


def aligned(x: Activations) -> Activations:
    out = empty_activations(x.rows, x.cols, x.form)
    out.values[:], out.scales[:] = x.values, x.scales
    return out


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.view(np.int32), b.view(np.int32))
