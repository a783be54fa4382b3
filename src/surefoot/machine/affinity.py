"""Processors that a thread may run on."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def running_on(cpus: Iterable[int]) -> Iterator[None]:
    """In the block, the calling thread runs on these processors only. Threads that it starts there inherit that for
    good."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
