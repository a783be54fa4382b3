"""`surefoot keys`: who may use a server, and how much."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from surefoot.cli.errors import told
from surefoot.server.key_file import KeyEntry, add_key, hash_of, make_key, read_keys, revoke_keys

keys = typer.Typer(help="Keys of a server's users.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="The file of keys.", show_default=False)]


@keys.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="The file of keys; made if it is not there.", show_default=False)],
    user: Annotated[str, typer.Option(help="Whose key it is: fairness and cache are by user.")],
    weight: Annotated[float, typer.Option(help="Share of the machine when it is busy.")] = 1.0,
    priority: Annotated[int, typer.Option(help="Larger is served first.")] = 0,
    requests_per_minute: Annotated[float | None, typer.Option()] = None,
    tokens_per_minute: Annotated[float | None, typer.Option()] = None,
    max_context: Annotated[int | None, typer.Option()] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May read /metrics, which tells of all users.")] = False,
) -> None:
    """Make a key. It is shown once; the file has its hash. A running server notices within a second."""
    key = make_key()
    with told():
        entry = KeyEntry(
            hash=hash_of(key), user=user, weight=weight, priority=priority, requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute, max_context=max_context, admin=admin,
        )  # fmt: skip
        add_key(file, entry)
    typer.echo(key)


@keys.command("list")
def list_keys(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table.")] = False,
) -> None:
    """Show users, the short names of their keys, and their limits."""
    with told():
        entries = read_keys(file)
    if as_json:
        typer.echo(json.dumps([{"name": entry.name, **entry.model_dump(exclude={"hash"})} for entry in entries]))
    else:
        Console().print(_table(entries))


@keys.command("revoke")
def revoke(
    file: File,
    name: Annotated[str | None, typer.Argument(help="Of the key, as `surefoot keys list` shows it.")] = None,
    user: Annotated[str | None, typer.Option(help="Revoke all keys of this user.", show_default=False)] = None,
) -> None:
    """Remove a key, with the comment right above it; the rest of the file stays as it is. A running server notices
    within a second; requests that run already go on."""
    if (name is None) == (user is None):
        raise typer.BadParameter("give a key's NAME or --user USER")
    with told():
        revoked = revoke_keys(file, name, user)
    for entry in revoked:
        typer.echo(f"revoked {entry.name} of {entry.user}")


def _table(entries: list[KeyEntry]) -> Table:
    table = Table(
        "user", "key", "weight", "priority", "requests/min", "tokens/min", "max context", "", box=box.SIMPLE, padding=0
    )
    for entry in entries:
        limits = (entry.requests_per_minute, entry.tokens_per_minute, entry.max_context)
        table.add_row(
            entry.user, entry.name, f"{entry.weight:g}", str(entry.priority),
            *("" if limit is None else f"{limit:g}" for limit in limits), "admin" if entry.admin else "",
        )  # fmt: skip
    return table
