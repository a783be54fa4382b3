"""The `surefoot` command. Each subcommand has a module of its own; this one only gathers them."""

from typing import Annotated

import typer

from surefoot import __version__
from surefoot.cli.bench import bench
from surefoot.cli.chat import chat
from surefoot.cli.doctor import doctor
from surefoot.cli.evaluate import evaluate
from surefoot.cli.generate import generate
from surefoot.cli.run_batch import run_batch
from surefoot.cli.serve import keys, serve
from surefoot.cli.top import top
from surefoot.cli.verify import verify

app = typer.Typer(
    name="surefoot",
    help="LLM inference for machines without a GPU: exact, and close to the machine's limit.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command()(generate)
app.command()(chat)
app.command("run-batch")(run_batch)
app.command()(doctor)
app.command()(serve)
app.add_typer(keys, name="keys")
app.command()(top)
app.command()(verify)
app.add_typer(bench, name="bench")
app.add_typer(evaluate, name="eval")
