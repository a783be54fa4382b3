"""The `surefoot` command. Each subcommand has its own module, which is imported on use."""

import importlib
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from surefoot import __version__
from surefoot.cli.startup import check_addresses, without_collection


@dataclass(frozen=True)
class Entry:
    module: str  # in surefoot.cli; defines a function or a typer group with the command's name. "": see _of_a_package
    help: str  # first words of the command's own help; shown by --help without importing the module


# In the order of --help.
COMMANDS = {
    "generate": Entry("generate", "Continue a prompt (or answer it, with --chat), word by word as it comes."),
    "chat": Entry("chat", "Talk with a model."),
    "run-batch": Entry("run_batch", "Answer every line of a file in OpenAI's batch format"),
    "pull": Entry("model_library", "Fetch a model from the Hugging Face hub."),
    "list": Entry("model_library", "List the models in the Hugging Face cache of this machine."),
    "show": Entry("model_library", "Show what a model is: family, sizes"),
    "rm": Entry("model_library", "Remove a fetched model from the Hugging Face cache."),
    "doctor": Entry("doctor", "Show what this machine offers and what surefoot will use of it."),
    "plan": Entry("plan", "Say what a model will do on a machine"),
    "serve": Entry("serve", "Serve a model to any OpenAI client."),
    "warm": Entry("warm", "Compute documents and system prompts ahead, so that questions about them start at once."),
    "agent": Entry("agent", "Print the settings with which a coding agent uses a server"),
    "cache": Entry("cache", "Look after the prompt cache on disk."),
    "top": Entry("top", "Watch a running server"),
    "fleet": Entry("fleet", "Several machines as one server."),
    "keys": Entry("keys", "Manage the API keys of a server's users."),
    "verify": Entry("verify", "Check that answers are the same bits whatever happens around them."),
    "bench": Entry("bench", "Measure speed beside the machine's limits and other engines."),
    "eval": Entry("evaluate", "Measure how good and how faithful a model's predictions are."),
    "compress": Entry("", "Write a smaller checkpoint"),
    "distill": Entry("", "Distil a draft for speculative decoding from the model itself"),
}
FUNCTIONS = {"eval": "evaluate", "list": "list_models", "rm": "remove_model"}  # whose names differ from the command's
OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def _command(name: str) -> Any:
    """A function or a typer group."""
    if not COMMANDS[name].module:
        return _of_a_package(name)
    module = importlib.import_module(f"surefoot.cli.{COMMANDS[name].module}")
    return getattr(module, FUNCTIONS.get(name, name.replace("-", "_")))


def _of_a_package(name: str) -> Any:
    """A command of the package surefoot-compress, which says so as an entry point."""
    metadata: Any = importlib.import_module("importlib.metadata")  # 10 ms that no other command spends
    for entry in metadata.entry_points(group="surefoot.commands", name=name):
        return entry.load()
    typer.echo(f"surefoot: {name} needs the package surefoot-compress: pip install ./compress in a checkout", err=True)
    raise typer.Exit(1)


class Commands(TyperGroup):
    """The commands of the table. Only the command that is called is imported, so that each starts quickly."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Plain text: importing rich would take longer than everything else on this page."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        check_addresses()
        with without_collection():
            command = _command(cmd_name)
        holder = typer.Typer(**OPTIONS)
        if isinstance(command, typer.Typer):
            holder.add_typer(command, name=cmd_name)
        else:
            holder.callback()(lambda: None)  # else a holder of one command is that command
            holder.command(cmd_name)(command)
        group: Any = typer.main.get_command(holder)
        return group.commands[cmd_name]


app = typer.Typer(
    name="surefoot",
    cls=Commands,
    help="LLM inference for machines without a GPU: exact, and close to the machine's limit.",
    **OPTIONS,
)


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that come before any command."""
