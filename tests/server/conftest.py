"""Servers that the tests share: starting one takes seconds."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.server.process import Server
from tests.smollm2 import find_file


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """On loopback, without keys."""
    made = Server(find_file(), "--max-context", "2048", "--max-running", "16", "--pooling", "mean")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def ranking() -> Iterator[Server]:
    """A reranker: the same model, asked for yes or no."""
    made = Server(find_file(), "--max-context", "512", "--max-running", "8", "--pooling", "rank")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> OpenAI:
    return OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
