"""Curves of efficiency, and how memory and arithmetic share a kernel's time."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from surefoot.ops import WeightFormat
from surefoot.speed.rates import (
    MIN_ARITHMETIC,
    Efficiency,
    arithmetic_part,
    form_name,
    limb_operations,
    make_curve,
    overlapped,
)

CURVE = make_curve([(1, 0.1), (16, 0.5), (512, 0.6)])


def test_curve_passes_through_its_points_and_is_flat_beyond() -> None:
    assert [CURVE.at(rows) for rows in (0.5, 1, 16, 512, 4096)] == [0.1, 0.1, 0.5, 0.6, 0.6]


@given(st.floats(1, 512), st.floats(1, 512))
def test_curve_rises_between_rising_points(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert CURVE.at(low) <= CURVE.at(high) + 1e-12


@given(st.floats(1e-6, 1), st.floats(1e-6, 1))
def test_arithmetic_part_is_the_inverse_of_overlap(memory: float, products: float) -> None:
    total = overlapped(memory, products)
    assert max(memory, products) <= total * (1 + 1e-9)
    assert total <= memory + products
    want = max(products, MIN_ARITHMETIC * total)
    assert arithmetic_part(total, memory) == pytest.approx(want, rel=1e-3)


def test_form_without_a_curve_takes_the_one_most_alike() -> None:
    wide, narrow = make_curve([(1, 0.5)]), make_curve([(1, 0.9)])
    efficiency = Efficiency({"w8x2a2g32": wide, "w4x2a2g32": narrow}, wide, 1.0, 0.0, 0.0, 0.0)
    assert efficiency.of(form_name(WeightFormat(4, 2, 16), 2)) is narrow
    assert efficiency.of(form_name(WeightFormat(8, 2, 32), 2)) is wide


def test_operations_of_pairs_of_limbs() -> None:
    assert limb_operations(WeightFormat(8, 2, 32), 2) == 8
    assert limb_operations(WeightFormat(8, 1), 1) == 2
