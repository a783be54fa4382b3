"""Curves are measured in the form in which they are shipped."""

import json

from typer.testing import CliRunner

from benchmarks.__main__ import app
from surefoot.speed.shipped_rates import efficiency_from_json, shipped_efficiency


def test_rates_are_printed_as_they_are_shipped() -> None:
    result = CliRunner().invoke(app, ["rates", "--seconds", "0.1"], catch_exceptions=False)
    measured = efficiency_from_json(json.loads(result.stdout))
    assert set(measured.linear) == set(shipped_efficiency("avx2").linear)
    assert all(value > 0 for curve in measured.linear.values() for value in curve.values)
