"""The files that run the server elsewhere: what can be told of them without running them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import run

PACKAGING = Path(__file__).parents[2] / "packaging"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "surefoot.service"
    (tmp_path / "surefoot.socket").write_text((PACKAGING / "surefoot.socket").read_text())
    text = (PACKAGING / "surefoot.service").read_text()
    assert text.count("/opt/surefoot/bin/surefoot ") == 1
    unit.write_text(text.replace("/opt/surefoot/bin/surefoot ", f"{sys.executable} "))
    done = subprocess.run(
        [program, "verify", str(unit), str(tmp_path / "surefoot.socket")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {done.stderr[:200]}")
    complaints = [line for line in done.stderr.splitlines() if "surefoot.s" in line]
    assert (done.returncode, complaints) == (0, [])


def test_options_that_they_give_exist() -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", run("serve", "--help").stdout))
    unit = (PACKAGING / "surefoot.service").read_text().partition("ExecStart=")[2].partition("ExecReload")[0]
    (command,) = re.findall(r"--cmd '(.*)'", (PACKAGING / "image" / "build").read_text())
    given = set(re.findall(r"--[a-z][a-z-]+", f"{unit} {command}"))
    assert {"--state-dir", "--keys", "--audit-log"} <= given <= known
