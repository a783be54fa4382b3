"""`surefoot keys`: who may use a server, and how much."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from surefoot.cli.errors import exit_on_error
from surefoot.server.access.key_file import KeyEntry, add_key, hash_of, make_key, read_keys, revoke_keys

keys = typer.Typer(help="Manage the API keys of a server's users.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="File of keys.", show_default=False)]


@keys.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="File of keys. It is created if it does not exist.", show_default=False)],
    user: Annotated[
        str, typer.Option(help="User that the key belongs to. Fair shares and cached prefixes are per user.")
    ],
    weight: Annotated[float, typer.Option(help="Weight of the user's share when the server is busy.")] = 1.0,
    priority: Annotated[int, typer.Option(help="Requests with a larger priority are served first.")] = 0,
    requests_per_minute: Annotated[float | None, typer.Option(help="Rate limit (default: none).")] = None,
    tokens_per_minute: Annotated[float | None, typer.Option(help="Rate limit (default: none).")] = None,
    max_context: Annotated[
        int | None, typer.Option(help="Longest request in tokens, prompt and answer (default: the server's).")
    ] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Allow the key to read figures of all users, and to add and revoke keys.")
    ] = False,
    no_disk_cache: Annotated[
        bool,
        typer.Option("--no-disk-cache", help="Cache the user's prompts and answers in memory alone, never on disk."),
    ] = False,
    upstream: Annotated[
        list[str] | None,
        typer.Option(help="Upstream of the server's file that may answer the key's requests. Can be repeated."),
    ] = None,
    upstream_budget: Annotated[
        float,
        typer.Option(help="What upstreams with a price may cost the key in a day, in the currency of their prices."),
    ] = 0.0,
) -> None:
    """Create a key and print it. The file keeps only its hash. A running server reads the file within a second."""
    key = make_key()
    with exit_on_error():
        entry = KeyEntry(
            hash=hash_of(key), user=user, weight=weight, priority=priority, requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute, max_context=max_context, admin=admin,
            disk_cache=not no_disk_cache, upstreams=tuple(upstream or ()), upstream_budget=upstream_budget,
        )  # fmt: skip
        add_key(file, entry)
    typer.echo(key)


@keys.command("list")
def list_keys(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array instead of a table.")] = False,
) -> None:
    """Show users, the short names of their keys, and their limits."""
    with exit_on_error():
        entries = read_keys(file)
    if as_json:
        typer.echo(json.dumps([entry.shown for entry in entries]))
    else:
        Console().print(_table(entries))


@keys.command("revoke")
def revoke(
    file: File,
    name: Annotated[str | None, typer.Argument(help="Short name of the key, as `surefoot keys list` shows it.")] = None,
    user: Annotated[str | None, typer.Option(help="Revoke all keys of this user.", show_default=False)] = None,
) -> None:
    """Remove a key and the comment right above it; the rest of the file stays as it is. A running server reads the file
    within a second. Requests that are already running continue."""
    if (name is None) == (user is None):
        raise typer.BadParameter("give a key's NAME or --user USER")
    with exit_on_error():
        revoked = revoke_keys(file, name, user)
    for entry in revoked:
        typer.echo(f"revoked {entry.name} of {entry.user}")


def _marks(entry: KeyEntry) -> Iterator[str]:
    if entry.admin:
        yield "admin"
    if not entry.disk_cache:
        yield "no-disk-cache"
    yield from (f"upstream:{name}" for name in entry.upstreams)
    if entry.upstream_budget:
        yield f"upstream-budget:{entry.upstream_budget:g}"


def _table(entries: list[KeyEntry]) -> Table:
    table = Table(
        "user", "key", "weight", "priority", "requests/min", "tokens/min", "max context", "", box=box.SIMPLE, padding=0
    )
    for entry in entries:
        limits = (entry.requests_per_minute, entry.tokens_per_minute, entry.max_context)
        table.add_row(
            entry.user, entry.name, f"{entry.weight:g}", str(entry.priority),
            *("" if limit is None else f"{limit:g}" for limit in limits), " ".join(_marks(entry)),
        )  # fmt: skip
    return table
