"""Rates as data."""

import pytest

from surefoot.ops.backend import NEEDS
from surefoot.speed.shipped_rates import efficiency_as_json, efficiency_from_json, nominal_rates, shipped_efficiency


def test_efficiencies_are_kept_as_json() -> None:
    efficiency = shipped_efficiency("avx2")
    assert efficiency_from_json(efficiency_as_json(efficiency, "a test")) == efficiency


@pytest.mark.parametrize("variant", NEEDS)
def test_every_variant_has_nominal_rates(variant: str) -> None:
    one, many = nominal_rates(variant, 1), nominal_rates(variant, 64)
    assert many.int8_operations_per_second == 64 * one.int8_operations_per_second
    assert one.read_bytes_per_second < many.read_bytes_per_second < 64 * one.read_bytes_per_second
    assert "w8x2a2g32" in one.efficiency.linear
