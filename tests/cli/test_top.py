"""`surefoot top` on a real server."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from openai import OpenAI

from tests.cli.process import Terminal, run
from tests.server.conftest import client, server
from tests.server.process import Server
from tests.server.routes.chat import ASK

__all__ = ["client", "server"]


@pytest.fixture
def busy(client: OpenAI) -> Iterator[None]:
    """A client reads one long answer after the other until the test is over."""
    is_over, has_begun = Event(), Event()

    def read() -> None:
        ask = {**ASK, "max_tokens": 1900, "stream": True, "extra_body": {"ignore_eos": True}}
        while not is_over.is_set():
            with client.chat.completions.create(**ask) as stream:
                for _ in stream:
                    has_begun.set()
                    if is_over.is_set():
                        break

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            assert has_begun.wait(60)
            yield
        finally:
            is_over.set()
        reader.result()


@pytest.mark.usefixtures("busy")
def test_once_for_machines(server: Server) -> None:
    made = run("top", server.url, "--once", "--json", "--every", "0.5")
    assert made.returncode == 0, made.stderr
    view = json.loads(made.stdout)
    assert (view["model"], view["requests_running"], view["engine_failures"]) == ("small", 1, 0)
    assert view["generated_per_second"] > 1
    assert view["step_ms"] > 0
    assert 0 < view["kv_use"] < 1


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_live_at_a_terminal(server: Server, term: str) -> None:
    with Terminal("top", server.root, "--every", "0.3", term=term) as terminal:
        terminal.wait_for("running")
        terminal.wait_for("to the first token")
        terminal.interrupt()
        assert terminal.leave() == 0


def test_once_shows_figures_of_an_idle_server_that_has_answered(server: Server, client: OpenAI) -> None:
    client.chat.completions.create(**ASK)
    for words in ((), ("--json",)):
        made = run("top", server.url, "--once", "--every", "0.2", *words)
        assert made.returncode == 0, made.stderr
        if words:
            view = json.loads(made.stdout)
            assert view["requests_running"] == 0
            assert all(view[name] is not None for name in ("step_ms", "tokens_per_step", "ttft_ms", "queue_ms"))
        else:
            assert re.search(r"latency +[\d.]+ ms to the first token", made.stdout)


def test_what_cannot_be_watched(server: Server) -> None:
    for address in ("http://127.0.0.1:9", "nonsense", server.root + "/nothing"):
        made = run("top", address, "--once")
        assert made.returncode == 1
        assert made.stderr.startswith("surefoot: ")
        assert "Traceback" not in made.stderr
