"""Matrices of random weights, for measuring: values do not affect how long a product takes."""

import numpy as np

from surefoot.ops.arrays import huge_empty
from surefoot.ops.backend import Backend
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat, place

PAGE = 4096


def random_weights(n: int, k: int, fmt: WeightFormat) -> IntegerWeights:
    """Random weights with codes over the whole range. Group scales are small enough that expanded weights fit their
    limbs."""
    rng = np.random.default_rng(n + k)
    low, high = (0, 16) if fmt.bits == 4 else (-127, 128)
    stretch = rng.integers(low, high, 1 << 20).astype(np.int8)  # repeated: values do not affect the duration
    codes = np.resize(stretch, (n, k))
    groups = fmt.num_groups(k)
    scales = rng.integers(1, 16 if fmt.limbs == 1 else 1024, (n, groups)).astype(np.int16) if groups else None
    table = np.arange(-8, 8, dtype=np.int8) if fmt.bits == 4 else None
    return IntegerWeights(fmt, codes, np.full(n, 1e-3, np.float32), scales, None, table)


def copies_of(backend: Backend, first: PackedWeights, count: int) -> tuple[PackedWeights, ...]:
    """The same bytes at `count` places, each at the start of a page."""
    stride = -(-first.nbytes // PAGE) * PAGE
    memory = huge_empty(stride * count)
    places = [memory[i * stride : i * stride + first.nbytes] for i in range(count)]
    for data in places:
        place(backend, first.n, data)
        data[:] = first.data
    return tuple(PackedWeights(first.format, first.n, first.k, data) for data in places)
