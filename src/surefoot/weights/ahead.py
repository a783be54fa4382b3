"""Work that is done ahead of its use, in other threads: numpy and the native library both let go of Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def made_ahead(make: Callable[[Item], Made], items: Iterable[Item], num_threads: int) -> Iterator[Made]:
    """make(item) of each in order, up to num_threads of them being made while one is in use."""
    with ThreadPoolExecutor(num_threads) as pool:
        coming: deque[Future[Made]] = deque()
        for item in items:
            coming.append(pool.submit(make, item))
            if len(coming) > num_threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
