"""What a benchmark's command reports, given time enough."""

import json
from collections.abc import Collection
from typing import Any

from typer.testing import CliRunner

from surefoot.cli.main import app


def report_of(*command: str, seconds: int, wanted: Collection[str]) -> Any:
    """The report of `surefoot bench COMMAND`. A machine that is busy with other things may not get to every figure in
    so many seconds: it gets five times as many, once."""
    for given in (seconds, 5 * seconds):
        words = ["bench", *command, "--json", "--quick", "--seconds", str(given)]
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        if all(report["figures"][name] for name in wanted):  # nothing measured is 0 at best
            break
    return report
