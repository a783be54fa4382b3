"""`surefoot cache`: what the prompt cache on disk holds, and what it should no longer hold."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from surefoot.api.prompt_cache import PromptCache, cache_root, open_store
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import format_size, size_option
from surefoot.disk_cache import (
    LOCK,
    BlockHasher,
    BlockStore,
    CacheInUse,
    Contents,
    ask_to_forget,
    is_forgotten,
    read_contents,
    read_key,
)

cache = typer.Typer(help="Look after the prompt cache on disk.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", help="Folder of one cache (default: all in ~/.cache/surefoot/prompts).", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
UNBOUNDED = 1 << 62
FORGET_S = 60.0  # in which a running server must have forgotten a user


@cache.command("ls")
def list_entries(folder: Folder = None, as_json: AsJson = False) -> None:
    """Show what each model and user has in the cache. Users are shown as hashes, as they stand on the disk."""
    with exit_on_error():
        rows = [row for path in _folders(folder) for row in _entries(path)]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table("folder", "model", "user", "blocks", "size", box=box.SIMPLE, padding=0)
    for row in rows:
        table.add_row(row["folder"], row["model"], row["user"], str(row["blocks"]), format_size(row["bytes"]))
    Console().print(table)


@cache.command()
def stats(folder: Folder = None, as_json: AsJson = False) -> None:
    """Show the size of each cache."""
    rows: list[dict[str, Any]] = []
    with exit_on_error():
        for path in _folders(folder):
            found = _contents(path)
            num_blocks = sum(holding.num_blocks for holding in found.holdings)
            rows.append({"folder": str(path), "blocks": num_blocks, "bytes": found.total_bytes})
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:
        typer.echo(f"{row['folder']}: {row['blocks']} blocks, {format_size(row['bytes'])}")


@cache.command()
def prune(
    to: Annotated[int, size_option("Size of each cache afterwards, such as 5GB (0: empty).")],
    folder: Folder = None,
) -> None:
    """Remove what is worth least: seconds to compute it again, times its chance of reuse, per byte."""
    with exit_on_error():
        for path in _folders(folder):
            with _opened(path) as store:
                before = store.total_bytes
                store.prune(to)
                typer.echo(f"{path}: {format_size(before)}, now {format_size(store.total_bytes)}")


@cache.command()
def forget(
    user: Annotated[str, typer.Option(help="User whose prompts and answers are removed ('': a server without keys).")],
    folder: Folder = None,
    cache_key_file: options.CacheKeyFile = None,
) -> None:
    """Remove all that a user's requests left. Files that held any of it are written anew without it. A running server
    does it itself; what it holds in memory stays there until it is evicted."""
    with exit_on_error():
        key = read_key(cache_key_file).hash_key if cache_key_file is not None else b""
        namespace = BlockHasher(b"", key).namespace(user)
        for path in _folders(folder):
            try:
                with _opened(path) as store:
                    num_blocks = store.forget(namespace)
            except CacheInUse as error:
                num_blocks = _forget_beside(path, namespace, str(error))
            typer.echo(f"{path}: {num_blocks} blocks removed")


@cache.command()
def verify(folder: Folder = None) -> None:
    """Read every block and compare its checksum. Damaged blocks are removed; the status is then 1."""
    num_damaged = 0
    with exit_on_error():
        for path in _folders(folder):
            with _opened(path) as store:
                report = store.verify()
                num_damaged += report.num_damaged
                typer.echo(f"{path}: {report.num_blocks} blocks, {report.num_damaged} damaged")
    if num_damaged:
        raise typer.Exit(1)


def _folders(folder: Path | None) -> list[Path]:
    """The folder itself, or those in it: each of several models has its own."""
    if folder is not None and (folder / LOCK).exists():
        return [folder]
    folders = sorted(lock.parent for lock in (folder or cache_root().expanduser()).glob(f"*/{LOCK}"))
    if folder is not None and not folders:
        raise ValueError(f"there is no prompt cache in {folder}")
    return folders


@contextmanager
def _opened(folder: Path) -> Iterator[BlockStore]:
    store, _ = open_store(PromptCache(folder, UNBOUNDED))
    try:
        yield store
    finally:
        store.close()


def _contents(folder: Path) -> Contents:
    with suppress(CacheInUse), _opened(folder):
        pass  # what a process left that was killed is in the index now
    return read_contents(folder)


def _forget_beside(folder: Path, namespace: bytes, who: str) -> int:
    """Ask the process that uses the folder. Returns the number of blocks that its index had."""
    num_blocks = sum(held.num_blocks for held in read_contents(folder).holdings if held.namespace == namespace)
    request = ask_to_forget(folder, namespace)
    if not is_forgotten(request, FORGET_S):
        request.unlink(missing_ok=True)
        raise OSError(f"{who} (it was asked to forget the user, and has not answered for {FORGET_S:g} s)")
    return num_blocks


def _entries(folder: Path) -> list[dict[str, Any]]:
    found = _contents(folder)
    return [
        {
            "folder": str(folder),
            "model": found.facts.get(f"model {holding.model.hex()}") or holding.model.hex()[:8],
            "user": holding.owner,
            "blocks": holding.num_blocks,
            "bytes": holding.num_bytes,
        }
        for holding in found.holdings
    ]
