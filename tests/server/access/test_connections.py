"""Clients that open connections and say little, or too much. Uvicorn and sockets are real; most tests have a small
application behind them, so that limits can be small. The clock of connections goes on when a test says so."""

import asyncio
import functools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from surefoot.api.llm import LLM
from surefoot.sampling.grammar import lark_grammar
from surefoot.sampling.grammar_trial import Trial
from surefoot.server.access.connections import Connection, ConnectionLimits, Connections, network_of, raise_file_limit
from tests.server.doors import DOORS, open_door
from tests.stories import stories_gguf
from tests.waiting import PATIENCE_S, wait_for

LIMITS = ConnectionLimits(most=8, reserved=3, head_bytes=4096, num_headers=20)
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


class Small:
    """A uvicorn with our connections. /hold answers when told to; /flood says a lot; the rest says its path."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._now = 0.0
        self.connections = Connections(limits, lambda: self._now)
        self.num_held = 0
        self._release: asyncio.Event
        config = uvicorn.Config(
            self._app, interface="asgi3", port=0, log_config=None, ws="none", lifespan="off", timeout_keep_alive=60,
            http=functools.partial(Connection, self.connections),
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_for(lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/hold":
            self.num_held += 1
            while (await receive())["type"] != "http.disconnect":
                pass
            self.num_held -= 1
        for _ in range(1000 if scope["path"] == "/flood" else 0):  # more than any buffer on the way holds
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S, source_address=(address, 0))

    def pass_time(self, seconds: float, when: Callable[[Connection], bool]) -> None:
        """Once all open connections have come so far. On the server's own loop, where none is in the middle of it."""

        async def passes() -> bool:
            connections = [one for own in self.connections._open.values() for one in own]
            is_time = bool(connections) and all(map(when, connections))
            self._now += seconds if is_time else 0
            return is_time

        loop = self._server.servers[0].get_loop()
        wait_for(lambda: asyncio.run_coroutine_threadsafe(passes(), loop).result(PATIENCE_S))

    def ask(self, path: str, address: str = "127.0.0.1") -> bytes:
        with self.connect(address) as one:
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            return read_all(one)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


@contextmanager
def small(limits: ConnectionLimits) -> Iterator[Small]:
    made = Small(limits)
    try:
        yield made
    finally:
        made.stop()


def is_in_head(connection: Connection) -> bool:
    return connection._is_in_head


def is_idle(connection: Connection) -> bool:
    return not connection._is_in_head and not connection._is_working


def is_held_up(connection: Connection) -> bool:
    return connection.flow is not None and connection.flow.write_paused


def read_all(one: socket.socket) -> bytes:
    """Until the server ends the connection."""
    data = b""
    with suppress(ConnectionError):
        while piece := one.recv(1 << 16):
            data += piece
    return data


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.fixture(scope="module")
def server() -> Iterator[Small]:
    with small(LIMITS) as made:
        yield made


def test_idle_connections_shut_nobody_out() -> None:
    """Ten times as many as there is room for: the longest idle ones make way."""
    with small(LIMITS) as server, ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(server.connect()).sendall(b"GET /slow HTTP/1.1\r\nX")
        assert status_of(server.ask("/any")) == 200
        assert status_of(server.ask("/any", "127.0.0.9")) == 200
        assert server.connections.num_open <= LIMITS.most + LIMITS.reserved
        assert server.connections.num_closed >= 80 - LIMITS.most


def test_health_answers_when_every_connection_works() -> None:
    with small(LIMITS) as server, ExitStack() as stack:
        for number in range(LIMITS.most):  # two addresses with half of all each
            one = stack.enter_context(server.connect(f"127.0.0.{1 + number % 2}"))
            one.sendall(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for(lambda: server.num_held == LIMITS.most)
        answer = server.ask("/any", "127.0.0.3")
        assert status_of(answer) == 503
        assert b"retry-after" in answer.lower()
        for _ in range(3 * LIMITS.reserved):
            stack.enter_context(server.connect("127.0.0.4")).sendall(b"GET")
        assert status_of(server.ask("/health", "127.0.0.3")) == 200
        assert status_of(server.ask("/ready", "127.0.0.1")) == 200
        assert server.num_held == LIMITS.most, "none that works was closed"


def test_one_address_has_half() -> None:
    with small(LIMITS) as server, ExitStack() as stack:
        for _ in range(2 * LIMITS.most):
            stack.enter_context(server.connect()).sendall(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for(lambda: server.num_held == LIMITS.most_of_address)
        assert status_of(server.ask("/any")) == 503
        assert status_of(server.ask("/any", "127.0.0.2")) == 200


def test_a_head_that_comes_too_slowly(server: Small) -> None:
    """It is never silent, and yet takes too long."""
    with server.connect() as one:
        for piece in (b"GET /", b"a"):
            one.sendall(piece)
            server.pass_time(0.6 * LIMITS.head_s, is_in_head)
        assert status_of(read_all(one)) == 408


def test_a_second_head_too(server: Small) -> None:
    with server.connect() as one:
        one.sendall(HEALTH)
        assert one.recv(4096).startswith(b"HTTP/1.1 200")
        one.sendall(b"GET /a HTTP/1.1\r\nX: ")
        server.pass_time(LIMITS.head_s, is_in_head)
        assert b" 408 " in read_all(one)


def test_idle_connections_end(server: Small) -> None:
    with server.connect() as silent, server.connect() as used:
        used.sendall(HEALTH)
        assert used.recv(4096).startswith(b"HTTP/1.1 200")
        server.pass_time(LIMITS.idle_s, is_idle)
        assert read_all(silent) == b""
        read_all(used)


LARGE_HEADS = {
    "one header": b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000,
    "whole": b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000 + b"\r\n\r\n",
    "many": b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 21 + b"\r\n",
    "path": b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
    "name": b"GET / HTTP/1.1\r\n" + b"a" * 10_000,
}


@pytest.mark.parametrize("head", LARGE_HEADS.values(), ids=LARGE_HEADS.keys())
def test_large_heads(server: Small, head: bytes) -> None:
    with server.connect() as one:
        one.sendall(head)
        assert status_of(read_all(one)) == 431


@pytest.mark.parametrize("end", [b"0\r\nX: ", b"1;x="], ids=["trailer", "extension"])
def test_endless_framing_of_a_body(server: Small, end: bytes) -> None:
    """What comes around a body is bounded as the head is; the request is cut off."""
    with server.connect() as one:
        one.sendall(b"POST /hold HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + end)
        with pytest.raises(ConnectionError):
            one.sendall(bytes(1 << 30))


def test_bodies_in_small_chunks_are_welcome(server: Small) -> None:
    with server.connect() as one:
        one.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        one.sendall(b"1\r\na\r\n" * 4000 + b"0\r\n\r\n")
        assert status_of(read_all(one)) == 200


def test_a_body_that_nobody_reads(server: Small) -> None:
    """The answer is there; what the client still withholds keeps nothing open."""
    with server.connect() as one:
        one.sendall(b"POST /any HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
        assert one.recv(4096).startswith(b"HTTP/1.1 200")
        server.pass_time(LIMITS.linger_s, is_idle)
        read_all(one)


def test_who_was_answered_early_may_go_on(server: Small) -> None:
    """A refusal comes before the body does; the connection is as good as before when the body is there."""
    with server.connect() as one:
        for _ in range(3):
            one.sendall(b"POST /any HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
            answer = b""
            while b"\r\n0\r\n\r\n" not in answer:
                answer += one.recv(4096)
            assert status_of(answer) == 200
            one.sendall(b"abc")


def test_an_answer_that_nobody_reads(server: Small) -> None:
    wait_for(lambda: server.connections.num_open == 0)
    with server.connect() as one:
        one.sendall(b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n")
        assert one.recv(1)
        server.pass_time(LIMITS.unread_s, is_held_up)
        wait_for(lambda: server.connections.num_open == 0)


def test_of_pipelined_requests_the_first_is_answered(server: Small) -> None:
    with server.connect() as one:
        one.sendall(b"".join(f"GET /number{number} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for number in range(5)))
        answer = read_all(one)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"/number0" in answer


def test_who_pipelines_and_leaves_is_noticed(server: Small) -> None:
    with server.connect() as one:
        one.sendall(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        wait_for(lambda: server.num_held == 1)
    wait_for(lambda: server.num_held == 0)


def test_garbage_is_refused(server: Small) -> None:
    with server.connect() as one:
        one.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert status_of(read_all(one)) == 400


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_one_client_of_ipv6_has_many_addresses(first: str, second: str, same: bool) -> None:
    assert (network_of(first) == network_of(second)) == same


def test_few_files_few_connections() -> None:
    for num_free in range(100_000):
        limits = ConnectionLimits.for_files(num_free)
        assert limits.most >= 2
        assert limits.reserved >= 2
        assert limits.most + limits.reserved <= max(4, num_free // 2)


def test_grammars_are_tried_beside_many_connections() -> None:
    """Whose descriptors leave none below 1,024 for the pipes."""
    raise_file_limit()
    trial = Trial(LLM(stories_gguf()).tokenizer.pieces)
    with ExitStack() as stack, open(os.devnull) as file:
        while (number := os.dup(file.fileno())) < 1100:
            stack.callback(os.close, number)
        stack.callback(os.close, number)
        stack.callback(trial.close)
        assert trial.complaint(lark_grammar('start: "a"')) == ""


@pytest.mark.parametrize("kind", DOORS)
def test_a_server_with_64_files(kind: str, tmp_path: Path) -> None:
    """Starts, and 200 connections shut nobody out."""
    door = open_door(kind, stories_gguf(), tmp_path, num_files=64)
    server = door.server
    try:
        port = int(server.root.rsplit(":", 1)[1])
        with ExitStack() as stack:
            for _ in range(200):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
                with suppress(ConnectionError):
                    one.sendall(b"GET /slow HTTP/1.1\r\nX")
            assert httpx.get(f"{server.root}/health").status_code == 200
            ask = {"model": "small", "prompt": "Once", "max_tokens": 4}
            grammar = {"response_format": {"type": "regex", "regex": "[a-z ]+"}}  # takes pipes
            for body in (ask, {**ask, **grammar}):
                assert httpx.post(f"{server.url}/completions", json=body).status_code == 200
    finally:
        log = door.stop()
    assert "Traceback" not in log
    assert log.count("\n") < 50
