"""Threads for work that may wait for the disk, apart from the event loop and from the threads that requests need."""

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
        """Run a function on one of the threads. If this is cancelled, the function still runs to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **named))

    def close(self) -> None:
        """Wait for the running functions, then end the threads."""
        self._threads.shutdown()
