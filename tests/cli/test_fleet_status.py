"""What `surefoot fleet status` prints of a fleet."""

import re
from pathlib import Path

from typer.testing import CliRunner

from surefoot.cli.fleet import status_as_json, status_lines
from surefoot.cli.main import app
from surefoot.fleet.process_keeper import ProcessState
from surefoot.fleet.ray_cluster import FleetStatus, MemberStatus, RatesStatus, rates_status

REPLICA = MemberStatus("replica-0", "http://10.0.0.2:8000", True, ProcessState(11, 1, ("surefoot",)))
SILENT = MemberStatus("gateway", "", False, None)
TOLD = {"keeper": REPLICA.url, "kept_s": 100.0, "users": 3, "gateways": 2, "leases": 4}


def test_a_fleet_with_its_keeper() -> None:
    found = FleetStatus((REPLICA,), rates_status(TOLD, 1_700_000_100.0))
    told = status_as_json(found)
    assert told["ready"]
    assert told["members"] == [{"name": "replica-0", "url": REPLICA.url, "ready": True, "pid": 11, "restarts": 1}]
    assert told["rates"] == {"keeper": REPLICA.url, "since": 1_700_000_000.0, "users": 3, "gateways": 2}
    lines = list(status_lines(found))
    assert re.fullmatch(r"replica-0 +ready +http://10.0.0.2:8000 +pid 11, 1 restarts", lines[0])
    assert re.fullmatch(
        r"rates +kept by http://10.0.0.2:8000 since 2023-11-\d\d .*, leases of 3 users at 2 gateways", lines[1]
    )


def test_a_gateway_that_does_not_answer() -> None:
    found = FleetStatus((REPLICA, SILENT), None)
    assert not found.is_ready
    assert status_as_json(found)["rates"] is None
    assert [line.split()[:2] for line in status_lines(found)] == [["replica-0", "ready"], ["gateway", "NOT"]]


def test_a_fleet_that_nobody_keeps_rates_of() -> None:
    *_, line = status_lines(FleetStatus((REPLICA,), RatesStatus(None, None, None, None)))
    assert line.split(maxsplit=1) == ["rates", "nobody keeps them yet"]
    assert not FleetStatus((), None).is_ready


def test_the_gateway_takes_its_key_by_the_name_that_servers_have_and_by_the_old_one(tmp_path: Path) -> None:
    for name in ("--fleet-key", "--key"):
        ended = CliRunner().invoke(app, ["fleet", "gateway", "http://10.0.0.2:8000", name, str(tmp_path / "missing")])
        assert ended.exit_code == 1
        assert "missing" in ended.output
