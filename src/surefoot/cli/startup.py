"""A quick start: while modules and models are loaded, nothing becomes garbage that is worth a search."""

import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

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


def import_beside(name: str) -> Callable[[], Any]:
    """Imports a module on another thread, while this one reads and packs weights, which lets go of Python's lock.

    What is returned waits for the module."""
    pool = ThreadPoolExecutor(1, "surefoot-import")
    module = pool.submit(import_module, name)
    pool.shutdown(wait=False)
    return module.result
