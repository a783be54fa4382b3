"""A quick start: while modules and models are loaded, nothing becomes garbage that is worth a search."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """What was made inside stays, and later searches for garbage pass it over."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
