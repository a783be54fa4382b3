"""`surefoot --help` is fast, and agrees with the help of each command."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import COMMANDS, Commands, app

# What commands need and a page of text does not.
HEAVY = ("numpy", "rich", "fastapi", "pydantic", "uvicorn", "tokenizers", "surefoot.api", "surefoot.ops")


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_imports_nothing_that_is_slow(words: list[str]) -> None:
    code = (
        "import sys, contextlib\n"
        "from surefoot.cli.main import app\n"
        f"with contextlib.suppress(SystemExit): app({words!r})\n"
        "print('loaded', *sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded"
    assert "typer" in loaded
    assert [name for name in loaded if name in HEAVY] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_the_table_is_how_the_commands_own_begins(name: str) -> None:
    command = Commands(name="surefoot").get_command(None, name)
    assert " ".join(command.help.split()).startswith(COMMANDS[name].help)


def test_a_command_of_a_package_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    done = CliRunner().invoke(app, ["compress", "--help"])
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "surefoot: compress needs the package surefoot-compress: pip install ./compress in a checkout"
    ]


def test_help_without_words_is_help() -> None:
    bare, asked = (CliRunner().invoke(app, words) for words in ([], ["--help"]))
    assert bare.output == asked.output
    assert all(name in asked.output for name in COMMANDS)
