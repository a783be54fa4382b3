"""The fixture of a server, started as the benchmarks do, with a tiny model."""

from collections.abc import Iterator

import pytest

from surefoot.bench.harness.server_process import RunningServer, free_port, own_launch, running
from tests.stories import stories_gguf


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    port = free_port()
    with running(own_launch(stories_gguf(), port, "--max-running", "8", "--max-queue", "24"), port) as server:
        yield server
