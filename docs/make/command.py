"""The reference of the `surefoot` command as Markdown, from the commands themselves.

python docs/make/command.py > command.md
"""

import re
from collections.abc import Iterator
from typing import Any

import click
from typer.main import get_command

from surefoot.cli.main import app

HEAD = """# Command reference

Every command and option, as `--help` has them.
"""


def render() -> str:
    root: Any = get_command(app)
    context = click.Context(root, info_name="surefoot")
    return "\n".join([HEAD, *_sections(root, context)])


def _sections(group: Any, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or getattr(command, "hidden", False):
            continue
        below = click.Context(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from _sections(command, below)
        else:
            yield from _command(command, below)


def _command(command: Any, context: click.Context) -> Iterator[str]:
    usage = command.collect_usage_pieces(context)
    yield f"## {context.command_path}\n"
    yield f"{_text(command.help or '')}\n"
    yield f"`{context.command_path} {' '.join(usage)}`\n"
    records = [record for parameter in command.get_params(context) if (record := _row(parameter, context))]
    yield "\n".join(["| option | |", "|---|---|", *records]) + "\n"


def _row(parameter: Any, context: click.Context) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    name, help_text = record
    return f"| `{name}` | {_text(help_text)} |"


def _text(text: str) -> str:
    """One line that a table can hold; what looks like a tag or a pattern is shown as it is."""
    plain = re.sub(r"\s+", " ", text.replace("\b", "")).strip()
    return re.sub(r"([<|*\[\]])", r"\\\1", plain) if "`" not in plain else plain.replace("|", "\\|")


if __name__ == "__main__":
    print(render())
