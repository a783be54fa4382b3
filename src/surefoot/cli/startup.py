"""A quick start: while modules and models are loaded, nothing becomes garbage that is worth a search."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from surefoot.machine import free_addresses

# Addresses that libraries take when they are imported: those in Rust end the process if they get none.
LEAST_ADDRESSES, ADDRESSES_PER_CORE = 224 << 20, 32 << 20  # the latter are numpy's, for its threads


@contextmanager
def without_collection() -> Iterator[None]:
    """What was made inside stays, and later searches for garbage pass it over."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def check_addresses() -> None:
    """Says so if a limit on addresses (`ulimit -v`) is too small to start under."""
    free, needed = free_addresses(), LEAST_ADDRESSES + ADDRESSES_PER_CORE * (os.cpu_count() or 1)
    if free is not None and free < needed:
        typer.echo(
            f"surefoot: the limit on addresses (ulimit -v) leaves {free >> 20} MiB, and {needed >> 20} MiB are needed "
            "to start: raise it (ulimit -v unlimited)",
            err=True,
        )
        raise typer.Exit(1)
