"""A quick start: while modules and models are loaded, nothing becomes garbage that is worth a search."""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def without_collection() -> Iterator[None]:
    """What was made inside stays, and later searches for garbage pass it over."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def import_beside(name: str) -> Callable[[], Any]:
    """Imports a module on another thread, while this one reads and packs weights, which lets go of Python's lock.

    What is returned waits for the module."""
    pool = ThreadPoolExecutor(1, "surefoot-import")
    module = pool.submit(import_module, name)
    pool.shutdown(wait=False)
    return module.result
