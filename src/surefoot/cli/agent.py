"""`surefoot agent`: the settings with which a coding agent uses a server."""

import shlex
from typing import Annotated

import typer

from surefoot.cli import options
from surefoot.cli.coding_agents import AGENTS, find_agent
from surefoot.cli.errors import exit_on_error


def agent(
    name: Annotated[str, typer.Argument(metavar="AGENT", help=f"One of {', '.join(AGENTS)}.", show_default=False)],
    model: Annotated[str, typer.Argument(help="The model's name on the server.", show_default=False)],
    url: options.ServerUrl = options.SERVER_URL,
    key: options.ServerKey = None,
) -> None:
    """Print the settings with which a coding agent uses a server: what to install, export and write."""
    with exit_on_error():
        chosen = find_agent(name)
    environment, files = chosen.filled(options.server_root(url), model, key or "none")
    typer.echo(f"# {chosen.install}")
    for variable, value in environment.items():
        typer.echo(f"export {variable}={shlex.quote(value)}")
    for path, text in files.items():
        typer.echo(f"# ~/{path}:\n{text}", nl=False)
