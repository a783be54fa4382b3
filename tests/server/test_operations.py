"""Operation under failures: full disks, signals, garbage, a server that shuts down."""

import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from surefoot.server.access.line_log import QUIET_S, LineLog
from surefoot.server.access.log_limit import WINDOW_S, LogLimit
from tests.server.doors import DOORS, SERVER, open_door
from tests.server.process import Server
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for

FULL = Path("/dev/full")
BODY: dict[str, Any] = {"model": "small", "prompt": "Once upon a time", "max_tokens": 4, "seed": 1}


def ask(server: Server, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}/completions", json=BODY, headers=headers, timeout=300)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class Operated:
    """A server or a gateway without keys, whose audit log has no room."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.access = folder / "access.jsonl"
        words = ("--audit-log", str(FULL), "--access-log", str(self.access), "--drain-s", "600")
        self.door = open_door(kind, stories_gguf(), folder, *words)
        self.server = self.door.server

    def access_line(self, request_id: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found[:] = [line for line in lines_of(self.access) if line["request_id"] == request_id]
            return bool(found)

        wait_for(is_there)
        return found[0]


@pytest.fixture(scope="module", params=DOORS)
def operated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    made = Operated(request.param, tmp_path_factory.mktemp("operated"))
    yield made
    made.door.stop()


@pytest.mark.parametrize("operated", [SERVER], indirect=True)  # a gateway has no line for requests that were let in
def test_a_full_disk_fails_no_request(operated: Operated) -> None:
    before = operated.server.metric("surefoot:audit_lines_lost_total")
    for _ in range(3):
        assert ask(operated.server).status_code == 200
    wait_for(lambda: operated.server.metric("surefoot:audit_lines_lost_total") == before + 3)
    operated.server.wait_for("the audit log has lost")
    assert operated.server.log.count("the audit log has lost") == 1


def test_sighup_ends_nothing_and_logs_begin_new_files(operated: Operated) -> None:
    old = operated.access.with_suffix(".1")
    operated.access.rename(old)
    os.kill(operated.server.process.pid, signal.SIGHUP)
    wait_for(operated.access.exists)
    reply = ask(operated.server, **{"x-request-id": "after-rotation"})
    assert reply.status_code == 200
    assert operated.access_line("after-rotation")["status"] == 200
    assert "after-rotation" not in old.read_text()


def test_request_ids_are_told(operated: Operated) -> None:
    root = operated.server.root
    for path in ("/health", "/ready", "/v1/models", "/metrics", "/nothing"):
        own, other = (httpx.get(root + path).headers["x-request-id"] for _ in range(2))
        assert own != other
    assert ask(operated.server, **{"x-request-id": "trace:1.2_3-4"}).headers["x-request-id"] == "trace:1.2_3-4"
    for wrong in ("", "x" * 129, "a b", 'a"b', "é"):
        raw = [(b"x-request-id", wrong.encode())]
        assert httpx.get(f"{root}/health", headers=raw).headers["x-request-id"] != wrong
    refused = httpx.post(f"{root}/v1/messages", json={}, headers={"x-request-id": "m1"})
    assert refused.status_code == 400
    assert refused.headers["x-request-id"] == refused.headers["request-id"] == "m1"
    foreign = httpx.get(f"{root}/health", headers={"host": "evil.example", "x-request-id": "g1"})
    assert (foreign.status_code, foreign.headers["x-request-id"]) == (403, "g1")
    with OpenAI(base_url=operated.server.url, api_key="none", max_retries=0) as client:
        assert client.completions.create(**BODY)._request_id
        with pytest.raises(BadRequestError) as caught:
            client.completions.create(**{**BODY, "max_tokens": -7})
        assert caught.value.request_id
        with client.completions.with_streaming_response.create(**{**BODY, "stream": True}) as stream:
            assert stream.headers["x-request-id"]


def test_access_log(operated: Operated) -> None:
    url = f"{operated.server.url}/completions?key=secret-1"
    reply = httpx.post(url, json={**BODY, "prompt": "secret-2"}, headers={"x-request-id": "line-1"})
    line = operated.access_line("line-1")
    assert {key: line[key] for key in ("client", "method", "path", "status", "bytes")} == {
        "client": "127.0.0.1", "method": "POST", "path": "/v1/completions", "status": 200,
        "bytes": len(reply.content),
    }  # fmt: skip
    assert line["ms"] > 0
    assert abs(line["time"] - time.time()) < 600
    httpx.get(f"{operated.server.root}/{'x' * 5000}", headers={"x-request-id": "line-2"})
    assert len(operated.access_line("line-2")["path"]) < 500
    assert "secret" not in operated.access.read_text()


def test_garbage_does_not_fill_the_log(operated: Operated) -> None:
    address = operated.server.root.removeprefix("http://").split(":")
    for _ in range(100):
        with socket.create_connection((address[0], int(address[1])), timeout=300) as connection:
            connection.sendall(b"\x16\x03\x01 garbage\r\n\r\n")
            connection.recv(4096)
    assert ask(operated.server).status_code == 200
    operated.server.read()
    assert operated.server.log.count("Invalid HTTP request") <= 20


REPEATED = ["a{1000000000}", "a{1000000000,}", "a{0,1000000000}", "(((a{1000}){1000}){1000})", "(a|b){100000000}"]
FORMATS = [
    *({"type": "regex", "regex": regex} for regex in REPEATED),
    *({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": regex}}}
      for regex in REPEATED),
    *({"type": "grammar", "grammar": f"start: {rule}"} for rule in (
        "/a{1000000000}/", '"a"{1000000000}', '"a"~1000000000', '(B{1000}){1000}\nB: "b"')),
]  # fmt: skip


@pytest.mark.parametrize("operated", [SERVER], indirect=True)
@pytest.mark.parametrize("wanted", FORMATS, ids=str)
def test_huge_repeat_counts_are_no_failure(operated: Operated, wanted: dict[str, Any]) -> None:
    reply = httpx.post(f"{operated.server.url}/completions", json={**BODY, "response_format": wanted}, timeout=300)
    assert reply.status_code in (200, 400), reply.text
    if reply.status_code == 400:
        assert re.search("make it (simpler|smaller)", reply.json()["error"]["message"])


@contextmanager
def unfinished_request(server: Server) -> Iterator[Callable[[], bytes]]:
    """A request whose body keeps coming, fast enough to be waited for. What is given completes it, for its answer."""
    host, port = server.root.removeprefix("http://").split(":")
    body, done = [b" " * 128] * 4095 + [json.dumps(BODY).encode().ljust(128)], threading.Event()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {128 * 4096}\r\n"
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:

        def keep_coming() -> None:
            for piece in body:
                connection.sendall(piece)
                done.wait(0.05)

        def complete() -> bytes:
            done.set()
            sending.join()
            return connection.recv(4096)

        sending = threading.Thread(target=keep_coming, daemon=True)
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n")
        sending.start()
        yield complete


def test_while_it_drains_it_says_so(operated: Operated) -> None:
    """Last in this file, since it ends the server. A request that has begun to arrive is what it waits for."""
    server = operated.server
    with unfinished_request(server) as complete:
        assert httpx.get(f"{server.root}/ready").status_code == 200
        server.terminate()
        wait_for(lambda: httpx.get(f"{server.root}/ready").status_code == 503)
        assert httpx.get(f"{server.root}/ready").json()["status"] == "draining"
        assert httpx.get(f"{server.root}/health").status_code == 200
        assert httpx.get(f"{server.root}/metrics").status_code == 200
        for refused in (ask(server), httpx.get(f"{server.url}/models")):
            assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (503, True)
            assert "shutting down" in refused.json()["error"]["message"]
        assert (b" 503 " if operated.door.behind is None else b" 200 ") in complete()  # a gateway passes it on
    assert server.process.wait(PATIENCE_S) in (0, -signal.SIGTERM)
    assert "Traceback" not in server.stop()


def test_an_audit_that_is_required(tmp_path: Path) -> None:
    """Nothing is answered without a line; once there is room again (here: the link leads elsewhere), all goes on."""
    link, file = tmp_path / "audit", tmp_path / "audit.jsonl"
    link.symlink_to(FULL)
    server = Server(stories_gguf(), "--audit-log", str(link), "--audit-required")
    try:
        refused = ask(server)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "audit_unavailable")
        assert httpx.get(f"{server.root}/health").status_code == 200
        link.unlink()
        link.symlink_to(file)
        os.kill(server.process.pid, signal.SIGHUP)
        wait_for(file.exists)
        assert ask(server, **{"x-request-id": "kept"}).status_code == 200
        wait_for(lambda: len(lines_of(file)) == 2)
        begun, whole = lines_of(file)
        assert (begun["end"], whole["end"]) == ("begun", "whole")
        assert begun["request_id"] == whole["request_id"] == "kept"
        assert begun["request"] == whole["request"]
        assert server.metric("surefoot:requests_in_server") == 0
    finally:
        server.stop()


# ---- the parts ----


def test_lost_lines_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = LineLog("audit log", FULL, clock=lambda: now)
    for _ in range(5):
        assert not log.write(a=1)
    assert len(caplog.records) == 1
    now = QUIET_S
    log.write(a=1)
    assert "has lost 6 lines" in caplog.records[1].getMessage()
    assert len(caplog.records) == 2
    log.close()


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes a part only, as on a disk that gets full: the real one, of half the bytes."""
    log, honest = LineLog("audit log", tmp_path / "log"), os.write
    log.write(number=1)
    monkeypatch.setattr(os, "write", lambda descriptor, data: honest(descriptor, data[: len(data) // 2]))
    assert not log.write(number=2)
    monkeypatch.undo()
    assert log.write(number=3)
    first, _, third = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(line)["number"] for line in (first, third)] == [1, 3]
    assert log.num_lost == 1
    log.close()


def test_logs_are_bounded_by_kind() -> None:
    now = 0.0
    limit = LogLimit(most=3, clock=lambda: now)

    def passes(text: str, *words: object) -> str | None:
        record = logging.LogRecord("name", logging.WARNING, "file", 1, text, words, None)
        return record.getMessage() if limit.filter(record) else None

    told = [passes("no %s", number) for number in range(10)]
    assert told[:2] == ["no 0", "no 1"]
    assert told[2] is not None
    assert "left out for a minute" in told[2]
    assert told[3:] == [None] * 7
    assert passes("another") == "another"
    now = WINDOW_S
    assert passes("no %s", 10) == "no 10 (7 more like it were left out)"
    assert passes("no %s", 11) == "no 11"
