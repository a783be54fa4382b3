"""The siege at full length: every stream ends as if nothing had happened."""

import pytest

from tests.fleet.siege import SiegePlan, run_siege

pytestmark = [pytest.mark.nightly, pytest.mark.long]


@pytest.mark.timeout(7200)
def test_every_stream_survives() -> None:
    report = run_siege(SiegePlan())
    assert report.faults == []
    assert report.num_identical == report.num_streams
    assert report.num_failovers > SiegePlan().num_positions
    if report.no_cuts:
        pytest.skip(f"{report.line()}")
