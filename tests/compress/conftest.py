"""numpy's products on one thread: small ones that wait for each other on shared cores take a hundred times as long."""

from collections.abc import Iterator

import pytest
import threadpoolctl


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threadpoolctl.threadpool_limits(1):
        yield
