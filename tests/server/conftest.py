"""Servers that the tests share: starting one takes seconds."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.fleet.running import key_file, num_ready, start_gateway
from tests.server.doors import DOORS, SERVER
from tests.server.process import Server
from tests.smollm2 import find_file
from tests.waiting import wait_for


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """On loopback, without keys."""
    fleet = ("--fleet-key", str(key_file(tmp_path_factory.mktemp("server"))))
    made = Server(find_file(), "--max-context", "2048", "--max-running", "16", "--pooling", "mean", *fleet)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def gateway(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Over that server."""
    made = start_gateway([server], tmp_path_factory.mktemp("gateway"))
    wait_for(lambda: num_ready(made) == 1)
    yield made
    made.stop()


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Server:
    """The server, then the gateway."""
    return request.getfixturevalue(SERVER if request.param == SERVER else "gateway")


@pytest.fixture(scope="session")
def ranking() -> Iterator[Server]:
    """A reranker: the same model, asked for yes or no."""
    made = Server(find_file(), "--max-context", "512", "--max-running", "8", "--pooling", "rank")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> OpenAI:
    return OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
