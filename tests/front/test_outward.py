"""Real servers, watched: with an upstream one connection goes out, for the request that may leave. Else none does."""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest

from surefoot.front.routing import ROUTE_HEADER
from tests.cli.process import run
from tests.front.many import config_file
from tests.front.recorder import Recorder
from tests.server.process import Server

CHAT = "/v1/chat/completions"
PUBLICLY = {"x-surefoot-sensitivity": "public"}
ROUTE = '\n[[route]]\nname = "auto"\nmodels = [{models}]\n'
BUDGET = ("--upstream-budget", "0.5")
HARMLESS = {"resolve 127.0.0.1"}  # the address to listen on


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc): connections are not watched")
    path, source = tmp_path_factory.mktemp("watch") / "watch.so", Path(__file__).with_name("watch.c")
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
    return path


class Watched(Server):
    """A server with models a, b and c, and a list of what it and its children tried on a network."""

    def __init__(self, folder: Path, library: Path, tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
        path, self.watched, self.audit = config_file(folder), folder / "watched", folder / "audit"
        path.write_text(path.read_text() + tables)
        keys = folder / "keys.toml"
        added = run("keys", "add", str(keys), "--user", "ann", "--upstream", "good", *BUDGET, "--admin").stdout
        self.own = {"Authorization": f"Bearer {added.strip()}"}
        options = ("--max-context", "512", "--max-running", "8", "--state-dir", str(folder / "state"))
        logs = ("--keys", str(keys), "--audit-log", str(self.audit))
        with monkeypatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(library))
            patch.setenv("WATCHED", str(self.watched))
            patch.setenv("GOOD_KEY", "sk-upstream")
            super().__init__(None, "--config", str(path), *options, *logs)

    def ask(self, text: str, **headers: str) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": text}], "model": "auto", "max_tokens": 4}
        return httpx.post(f"{self.root}{CHAT}", json=body, headers={**self.own, **headers})

    @property
    def tried(self) -> list[str]:
        lines = self.watched.read_text().splitlines() if self.watched.exists() else []
        return [line.strip() for line in lines if line.strip() not in HARMLESS]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Listens on a thread of its own."""
    made, up = Recorder(), Queue[asyncio.AbstractEventLoop]()
    ending = asyncio.Event()

    async def listen() -> None:
        async with made.listening():
            up.put(asyncio.get_running_loop())
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    loop = up.get()
    yield made
    loop.call_soon_threadsafe(ending.set)
    thread.join()


def test_with_an_upstream(tmp_path: Path, library: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = f'[[upstream]]\nname = "good"\nurl = "{recorder.url("good")}"\nmodel = "m"\nallows = "public"\n'
    upstream += "price-in = 2.0\nprice-out = 10.0\n"
    tables = "\n" + upstream + 'key-env = "GOOD_KEY"\n' + ROUTE.format(models='"good", "a"')
    server = Watched(tmp_path, library, tables, monkeypatch)
    try:
        for text, headers in (("Once upon a time", {}), ("Twice", {"x-surefoot-sensitivity": "internal"})):
            reply = server.ask(text, **headers)
            told = json.loads(reply.headers[ROUTE_HEADER])
            assert (told["model"], told["upstreams"]) == ("a", {"good": "declaration"})
        assert server.tried == []
        reply = server.ask("In a public place", **PUBLICLY)
        assert reply.json()["model"] == "elsewhere"
        assert server.tried == ["connect"]
        assert b"Bearer sk-upstream" in recorder.requests[0].head
        leaving = [line for line in map(json.loads, server.audit.read_text().splitlines()) if line["end"] == "leaves"]
        assert [(line["upstream"], line["bytes"]) for line in leaving] == [("good", len(recorder.requests[0].body))]
        key = leaving[0]["key"]
        metrics = httpx.get(f"{server.root}/metrics", headers=server.own).text
        assert f'surefoot:upstream_cost_total{{key="{key}",model_name="good",user="ann"}} 4.4e-05' in metrics
        assert 'surefoot:upstream_tokens_total{kind="answer",model_name="good"} 3.0' in metrics
        assert f'"spent": {{"{key}": 44}}' in (tmp_path / "state/state-2/upstream-spending").read_text()
        told = json.loads(server.ask("Once upon a time", **PUBLICLY).headers[ROUTE_HEADER])
        assert told["upstreams"] == {"good": "conversation"}
        assert len(recorder.requests) == 1
        assert f"upstream good: {recorder.url('good')}" in server.log
    finally:
        server.stop()
        (tmp_path / "state/state-2/private-marks").unlink()


def test_without_an_upstream_nothing_connects_outwards(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked, by a key that may use upstreams."""
    server = Watched(tmp_path, library, ROUTE.format(models='"a"'), monkeypatch)
    try:
        link = "https://example.org/picture.png"
        parts = [{"type": "text", "text": link}, {"type": "image_url", "image_url": {"url": link}}]
        bodies: list[tuple[str, dict[str, Any]]] = [
            (CHAT, {"messages": [{"role": "user", "content": link}]}),
            (CHAT, {"messages": [{"role": "user", "content": parts}]}),
            ("/v1/completions", {"prompt": link}),
            ("/v1/responses", {"input": link, "tools": [{"type": "web_search"}]}),
            ("/v1/messages", {"messages": [{"role": "user", "content": link}], "max_tokens": 4}),
            ("/admin/models/load", {"model": link}),
        ]
        for path, body in bodies:
            given = {"model": "auto", "max_tokens": 4, **body}
            httpx.post(f"{server.root}{path}", json=given, headers={**server.own, **PUBLICLY, ROUTE_HEADER: "a"})
        assert server.ask(link, **PUBLICLY).status_code == 200
        assert server.tried == []
        assert not (tmp_path / "state/state-2/private-marks").exists()
    finally:
        server.stop()
