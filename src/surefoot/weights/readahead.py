"""Computes items ahead of their use in other threads. numpy and the native library both release the GIL."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(make: Callable[[Item], Result], items: Iterable[Item], num_threads: int) -> Iterator[Result]:
    """make(item) of each item in order. Up to `num_threads` results are computed ahead of the current one."""
    with ThreadPoolExecutor(num_threads) as pool:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > num_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
