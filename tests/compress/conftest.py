"""Limits numpy's products to one thread: on busy cores, threads that wait for each other are a hundred times slower."""

from collections.abc import Iterator

import pytest
import threadpoolctl


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threadpoolctl.threadpool_limits(1):
        yield
