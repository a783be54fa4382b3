"""Threads for what may have to wait for the disk: not the event loop, and not the threads that requests need."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

NUM_THREADS = 4
P = ParamSpec("P")
T = TypeVar("T")


class Disk:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="disk")

    async def run(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Cancelled, it leaves the function to end by itself."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **named))

    def close(self) -> None:
        """When the functions that run have ended."""
        self._threads.shutdown()
