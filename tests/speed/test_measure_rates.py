"""Rates reproduce the times that they come from. Here every sample takes a millisecond: no clock is read."""

import pytest

from surefoot.ops import Backend, WeightFormat
from surefoot.ops.weights import packed_bytes
from surefoot.speed import measure_rates as measuring
from surefoot.speed.measure_rates import AttentionShape, LinearShape, measure_rates
from surefoot.speed.rates import limb_operations, overlapped

W8, W4 = WeightFormat(8, 2, 32), WeightFormat(4, 2, 32)


def test_rates_reproduce_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SAMPLE_BYTES", 1)  # one copy
    monkeypatch.setattr(measuring, "BUFFER_BYTES", 1 << 24)
    monkeypatch.setattr(measuring, "_timed", lambda run: 0.001)
    shapes = [LinearShape(W8, 2, 64, 96), LinearShape(W4, 2, 32, 96)]
    rates = measure_rates(Backend("portable", 1), shapes, AttentionShape(4, 2, 32, 32), seconds=0)
    assert rates.read_bytes_per_second == pytest.approx((1 << 24) / 0.001)
    for shape in shapes:
        memory = packed_bytes(shape.format, shape.n, 96, False) / rates.read_bytes_per_second
        work = shape.n * 96 * limb_operations(shape.format, 2)
        for rows in measuring.ROWS:
            efficiency = rates.efficiency.of(shape.name).at(rows)
            products = rows * work / (efficiency * rates.int8_operations_per_second)
            assert overlapped(memory, products) == pytest.approx(0.001)


def test_large_matrices_are_measured_in_part() -> None:
    assert LinearShape(W8, 2, 100_000, 4096).measured_outputs == measuring.MAX_WEIGHTS // 4096 // 32 * 32
    assert LinearShape(W8, 2, 64, 96).measured_outputs == 64
