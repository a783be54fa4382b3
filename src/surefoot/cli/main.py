"""The `surefoot` command. Each subcommand has a module of its own, which is imported when it is called for."""

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from surefoot import __version__
from surefoot.cli.startup import without_collection

# In the order of --help: a function's or a group's name, and the module in surefoot.cli that has it.
COMMANDS = {
    "generate": "generate",
    "chat": "chat",
    "run-batch": "run_batch",
    "doctor": "doctor",
    "serve": "serve",
    "top": "top",
    "keys": "keys",
    "verify": "verify",
    "bench": "bench",
    "eval": "evaluate",
    "compress": "compress",
    "distill": "distill",
}
OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Commands(TyperGroup):
    """Those of the table. Whoever serves need not wait for what only measures."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        with without_collection():
            module = importlib.import_module(f"surefoot.cli.{COMMANDS[cmd_name]}")
        found = getattr(module, {"eval": "evaluate"}.get(cmd_name, cmd_name.replace("-", "_")))
        holder = typer.Typer(**OPTIONS)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=cmd_name)
        else:
            holder.callback()(lambda: None)  # else a holder of one command is that command
            holder.command(cmd_name)(found)
        group: Any = typer.main.get_command(holder)
        return group.commands[cmd_name]


app = typer.Typer(
    name="surefoot",
    cls=Commands,
    help="LLM inference for machines without a GPU: exact, and close to the machine's limit.",
    **OPTIONS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before any command."""
