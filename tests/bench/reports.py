"""Runs a benchmark's command and returns its report."""

import json
from collections.abc import Collection
from typing import Any

from typer.testing import CliRunner

from benchmarks.__main__ import app as benchmarks
from surefoot.cli.bench import bench


def report_of(*command: str, seconds: int, wanted: Collection[str]) -> Any:
    """The report of a command of `surefoot bench` or `python -m benchmarks`. If a busy machine does not measure all
    wanted figures in `seconds`, the command runs once more with five times as many."""
    app = bench if command[0] in ("model", "engine", "serve") else benchmarks
    for budget in (seconds, 5 * seconds):
        arguments = [*command, "--json", "--quick", "--seconds", str(budget)]
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        if all(report["figures"][name] for name in wanted):  # a measured figure is never 0
            break
    return report
