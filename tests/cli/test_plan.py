"""`surefoot plan`, from a file's header."""

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.plan.machines import known_machines
from tests.stories import stories_gguf

ARGUMENTS = ["plan", str(stories_gguf()), "--on", "epyc-7763", "--prompt", "60", "--answer", "20", "--no-search"]


def test_plan_as_json() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--users", "2", "--json"])
    plan = json.loads(result.stdout)
    assert plan["fits"]
    assert plan["load"]["num_users"] == 2
    assert plan["alone"]["tokens_per_second"] > 0


def test_plan_as_tables_and_page(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--html", str(tmp_path / "plan.html")])
    assert result.exit_code == 0, result.output
    assert "What would change it" in result.stdout
    page = (tmp_path / "plan.html").read_text()
    assert page.count("<svg") == 2


def test_an_unknown_machine_is_one_line() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--on", "abacus"])
    assert result.exit_code == 1
    assert "epyc-7763" in result.output


def test_known_machines_are_compared() -> None:
    asked = [*ARGUMENTS, "--on", "any", "--users", "2"]
    plans = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert [plan["machine"] for plan in plans] == list(known_machines())
    assert all(plan["load"]["num_users"] == 2 for plan in plans)
    shown = CliRunner().invoke(app, asked)
    assert all(name in shown.stdout for name in known_machines())


def test_machines_are_not_compared_without_a_load() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--on", "any"])
    assert result.exit_code == 1
    assert "--users" in result.output


def test_which_machine_would_do() -> None:
    wish = "4 users, smollm2-135m:q8_0, 1 tokens/s each, prompts of 64, answers of 8"
    plans = json.loads(CliRunner().invoke(app, ["plan", "--for", wish, "--json"]).stdout)
    assert [plan["machine"] for plan in plans] == list(known_machines())
    assert all(plan["load"]["num_users"] == 4 and plan["load"]["meets_service"] for plan in plans)


def test_assumptions_are_printed_and_what_would_pass_does() -> None:
    wish = "24 users, smollm2-1.7b:q4_1, 300 tokens/s each, prompts of 600, answers of 8, pauses of 8 s"
    shown = CliRunner().invoke(app, ["plan", "--for", wish]).stdout
    assert "prompts of 600 tokens, answers of 8, pauses of 8 s" in shown
    assert "95 % of answers begin within 5 s and come at 300 tokens/s" in shown
    found = re.search(r"nearest  (\S+) would do with (\d+) users; or .*; or (\S+)$", shown, re.MULTILINE)
    assert found is not None, shown
    for users, model in ((found[2], "smollm2-1.7b:q4_1"), ("24", found[3])):
        words = ["plan", model, "--on", found[1], "--users", users, "--tokens-per-second", "300", "--prompt", "600"]
        planned = CliRunner().invoke(app, [*words, "--answer", "8", "--pause", "8", "--no-search", "--json"])
        assert json.loads(planned.stdout)["load"]["meets_service"], planned.stdout


def test_what_passes_needs_no_advice() -> None:
    wish = "4 users, smollm2-135m:q8_0, 1 tokens/s each, prompts of 64, answers of 8"
    assert "nearest" not in CliRunner().invoke(app, ["plan", "--for", wish]).stdout


def test_a_plan_needs_a_model() -> None:
    result = CliRunner().invoke(app, ["plan", "--for", "4 users"])
    assert result.exit_code == 1
    assert "8B" in result.output


def test_energy_and_price_of_tokens() -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, "--watts", "100", "--price", "1"])
    assert "J a token" in result.stdout
    assert "million tokens" in result.stdout


def test_two_sockets_are_planned_both_ways() -> None:
    words = ["plan", str(stories_gguf()), "--on", "2x-epyc-9654", "--prompt", "60", "--answer", "20", "--no-search"]
    ways = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["nodes"]
    assert [(way["way"], way["num_users"], way["num_engines"]) for way in ways] == [
        ("split", 1, 1), ("each", 1, 2), ("split", 32, 1), ("each", 32, 2)
    ]  # fmt: skip
    shown = CliRunner().invoke(app, words).stdout
    assert re.search(r"barriers +│", shown)
    assert re.search(r"better for 32 users: (split|each); .*instead of", shown)


def test_one_socket_has_no_ways() -> None:
    assert json.loads(CliRunner().invoke(app, [*ARGUMENTS, "--json"]).stdout)["nodes"] == []
    assert "split" not in CliRunner().invoke(app, ARGUMENTS).stdout
