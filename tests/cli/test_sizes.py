"""Every option for bytes or a time is written the same way: 4MiB or 4194304, 90s or 90."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.cli.sizes import SIZE, TIME, size_option, time_option

# By name or by help, so that a new option is noticed.
OF_BYTES = re.compile(r"_bytes$|memory$|_disk$|\d[kMGT]i?B\b")
OF_TIME = re.compile(
    r"_s$|^(?:peer_)?seconds$|minutes$|keep_alive|max_wait|timeout|\bTime (?:to|for|between)\b|\b30m\b"
)
NOT_OF_TIME = {"requests_per_minute", "tokens_per_minute", "tokens_per_second", "no_disk_cache"}


def leaves(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group."""
    if not hasattr(group, "list_commands"):
        yield name, group
        return
    for part in group.list_commands(None):
        yield from leaves(group.get_command(None, part), f"{name} {part}".strip())


OPTIONS = {
    f"{name} {option.opts[0]}": option
    for name, command in leaves(typer.main.get_command(app), "")
    for option in command.params
    if option.param_type_name == "option" and not option.is_flag and option.name not in NOT_OF_TIME
}


@pytest.mark.parametrize(("pattern", "metavar", "least"), [(OF_BYTES, SIZE, 9), (OF_TIME, TIME, 15)])
def test_every_such_option_is_read_by_the_one_parser(pattern: re.Pattern[str], metavar: str, least: int) -> None:
    found = {
        name: option.metavar
        for name, option in OPTIONS.items()
        if pattern.search(option.name) or pattern.search(option.help or "")
    }
    assert len(found) >= least
    assert {name: shown for name, shown in found.items() if shown != metavar} == {}


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        (size_option("", "--of"), "4MiB", 4 << 20),
        (size_option("", "--of"), "4MB", 4_000_000),
        (size_option("", "--of", at_least=7), "7", 7),
        (time_option("", "--of"), "600", 600.0),
        (time_option("", "--of"), "90s", 90.0),
        (time_option("", "--of"), "1.5h", 5400.0),
        (time_option("", "--of", unit="m"), "30", 1800.0),
        (time_option("", "--of", unit="m"), "30s", 30.0),
    ],
)
def test_values(option: Any, given: str, expected: float) -> None:
    assert invoke(option, "--of", given).output == f"{expected}\n"


@pytest.mark.parametrize(
    ("option", "given", "reason"),
    [
        (size_option("", "--of"), "5 apples", "'--of': invalid size '5 apples': write it like 20GB"),
        (size_option("", "--of", at_least=8), "7", "'--of': '7' is less than 8 bytes"),
        (time_option("", "--of"), "soon", "'--of': invalid time 'soon': write it like 90s"),
        (time_option("", "--of", at_least=1), "0.5", "'--of': '0.5' is less than 1 s"),
    ],
)
def test_what_cannot_be_is_said_with_the_options_name(option: Any, given: str, reason: str) -> None:
    ended = invoke(option, "--of", given)
    assert ended.exit_code == 2
    assert reason in re.sub(r"[\s│]+", " ", ended.output)


def invoke(option: Any, *words: str) -> Any:
    alone = typer.Typer()

    def command(of: float = option) -> None:
        typer.echo(of)

    alone.command()(command)
    return CliRunner().invoke(alone, words, env={"COLUMNS": "200"})
