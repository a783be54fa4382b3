"""A faster start: no garbage collection while modules and models load, imports on another thread."""

import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer

from surefoot.machine import free_addresses

# Address space that libraries reserve when they are imported. Libraries in Rust abort if they get none.
MIN_ADDRESSES, ADDRESSES_PER_CORE = 224 << 20, 32 << 20  # the latter are numpy's, for its threads


@contextmanager
def without_collection() -> Iterator[None]:
    """Disables garbage collection inside the block. Objects created there are never scanned afterwards."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def check_addresses() -> None:
    """Exits with a message if the limit on address space (`ulimit -v`) is too small to start."""
    free, needed = free_addresses(), MIN_ADDRESSES + ADDRESSES_PER_CORE * (os.cpu_count() or 1)
    if free is not None and free < needed:
        typer.echo(
            f"surefoot: the limit on addresses (ulimit -v) leaves {free >> 20} MiB, and {needed >> 20} MiB are needed "
            "to start: raise it (ulimit -v unlimited)",
            err=True,
        )
        raise typer.Exit(1)


def import_in_background(name: str) -> Callable[[], Any]:
    """Imports a module on another thread, while this thread reads and packs weights without holding the GIL.

    Returns a function that waits for the module and returns it."""
    pool = ThreadPoolExecutor(1, "surefoot-import")
    module = pool.submit(import_module, name)
    pool.shutdown(wait=False)
    return module.result
