"""surefoot verify, in this process."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.ops import supported_variants
from surefoot.sampling import Sampler
from tests.cli.process import Terminal
from tests.stories import stories_gguf


def words() -> list[str]:
    return ["verify", str(stories_gguf()), "--quick", "--requests", "4"]


def facts(*more: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of --json: one for each condition, and the summary."""
    result = CliRunner().invoke(app, [*words(), "--json", *more])
    assert result.exit_code == 0, result.output
    *conditions, summary = map(json.loads, result.stdout.splitlines())
    return conditions, summary


def test_same_bits() -> None:
    conditions, summary = facts()
    assert summary["same"]
    assert summary["num_conditions"] == len(conditions)
    machines = {(finding["variant"], finding["threads"]) for finding in conditions}
    assert machines >= {(variant, threads) for variant in supported_variants() for threads in (1, 2)}
    assert all(finding["same"] and finding["num_tokens"] > 0 for finding in conditions)
    assert summary["complete"] == all(finding["is_whole"] for finding in conditions)


def test_one_variant() -> None:
    conditions, _ = facts("--variant", "portable")
    assert [finding["threads"] for finding in conditions if finding["condition"]["variant"] == "portable"] == [1, 2]
    assert {finding["variant"] for finding in conditions} == {"portable", supported_variants()[0]}
    assert "no variant is named" in CliRunner().invoke(app, [*words(), "--variant", "gpu"]).output


def test_ctrl_c_stops_and_reports_what_was_checked() -> None:
    """Verdicts come one by one: the first is there long before the last of --all."""
    with Terminal("verify", stories_gguf(), "--all", "--requests", "4") as terminal:
        terminal.wait_for("same bits")
        terminal.interrupt()
        said = terminal.wait_for(" conditions")
        assert re.search(r"all the same bits: [\d,]+ answers under \d+ of \d\d", said)
        assert terminal.leave() == 0


def test_without_time_nothing_is_verified() -> None:
    result = CliRunner().invoke(app, [*words(), "--minutes", "0.01"])
    assert result.exit_code == ("nothing was compared" in result.output)
    assert re.match(r"\d+ requests alone, then under \d+ conditions: would take about \d+ s, and ends", result.output)
    assert re.search(r"nothing was compared|all the same bits: .* under \d of \d", result.output)


def test_a_difference_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Sampler.draw

    def off(sampler: Sampler, logits: object, draws: list) -> list:
        drawn = original(sampler, logits, draws)
        return [draw._replace(token=draw.token ^ 1) if len(draws) > 4 else draw for draw in drawn]

    monkeypatch.setattr(Sampler, "draw", off)
    result = CliRunner().invoke(app, words())
    assert result.exit_code == 1
    assert "DIFFER" in result.output
    assert re.match(r"\d+ requests alone, then under \d+ conditions: about \d+ (s|minutes); Ctrl-C", result.output)
