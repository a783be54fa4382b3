"""The gateway's connections, against a server that answers with the bytes that a test gives it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.fleet.replica_transport import MOST_BUFFERED, ReplicaTransport
from tests.waiting import PATIENCE_S

T = TypeVar("T")
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"


class ScriptedServer:
    """Answers the requests of each connection with the given replies in turn. closes: the connection, after each."""

    def __init__(self, replies: list[bytes], piece: int = 1 << 20, *, closes: bool = False) -> None:
        self._replies = iter(replies)
        self._closes = closes
        self._piece = piece
        self.num_connections = 0
        self.requests: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                reply = next(self._replies)
                for start in range(0, len(reply), self._piece):
                    writer.write(reply[start : start + self._piece])
                    await writer.drain()
                    await asyncio.sleep(0)
                if self._closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def run(server: ScriptedServer, work: Callable[[httpx2.AsyncClient, str], Awaitable[T]]) -> T:
    async def both() -> T:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/path?query=1"
        async with httpx2.AsyncClient(transport=ReplicaTransport(), timeout=None) as client, listening:
            return await asyncio.wait_for(work(client, url), PATIENCE_S)

    return asyncio.run(both())


@given(st.sampled_from([WHOLE, CHUNKED]), st.integers(1, 40))
def test_a_reply_is_the_same_however_it_is_cut(reply: bytes, piece: int) -> None:
    async def ask(client: httpx2.AsyncClient, url: str) -> bytes:
        return (await client.post(url, content=b"body")).content

    assert run(ScriptedServer([reply], piece), ask) == b"abc"


def test_a_request_is_sent_whole_and_a_connection_used_again() -> None:
    async def ask(client: httpx2.AsyncClient, url: str) -> list[int]:
        return [(await client.post(url, content=b"body", headers={"x-key": "k"})).status_code for _ in range(3)]

    server = ScriptedServer([CHUNKED, WHOLE, CHUNKED])
    assert run(server, ask) == [200] * 3
    assert server.num_connections == 1
    assert server.requests[0].startswith(b"POST /path?query=1 HTTP/1.1\r\n")
    assert b"\r\nx-key: k\r\n" in server.requests[0]
    assert server.requests[0].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", CHUNKED + b"HTTP/1.1 200 OK\r\n"]
)
def test_a_connection_is_not_used_again_if_it_closes_or_says_too_much(reply: bytes) -> None:
    async def ask(client: httpx2.AsyncClient, url: str) -> bytes:
        await client.post(url, content=b"")
        return (await client.post(url, content=b"")).content

    server = ScriptedServer([reply, WHOLE])
    assert run(server, ask) == b"abc"
    assert server.num_connections == 2


ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\nmore"
OTHER = WHOLE.replace(b"abc", b"xyz")


@pytest.mark.parametrize(("reply", "num_parts"), [(ENDLESS, 1), (ENDLESS, 0), (OTHER, 0)])
def test_a_reply_that_is_left_early_does_not_reach_the_next_request(reply: bytes, num_parts: int) -> None:
    async def ask(client: httpx2.AsyncClient, url: str) -> bytes:
        async with client.stream("POST", url, content=b"") as left:
            parts = aiter(left.aiter_raw())
            for _ in range(num_parts):
                await anext(parts)
        return (await client.post(url, content=b"")).content

    assert run(ScriptedServer([reply, WHOLE]), ask) == b"abc"


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200", CHUNKED[:-5], CHUNKED[:-12], WHOLE[:-1], b"not HTTP at all\r\n\r\n"]
)
def test_a_reply_that_breaks_off_is_an_error(reply: bytes) -> None:
    async def ask(client: httpx2.AsyncClient, url: str) -> None:
        with pytest.raises(httpx2.TransportError):
            await client.post(url, content=b"")

    run(ScriptedServer([reply], closes=True), ask)


def test_nobody_listens() -> None:
    async def ask() -> None:
        async with httpx2.AsyncClient(transport=ReplicaTransport()) as client:
            await client.post("http://127.0.0.1:9/", content=b"")

    with pytest.raises(httpx2.ConnectError):
        asyncio.run(ask())


def test_a_reader_that_stops_makes_the_server_wait() -> None:
    length = 64 * MOST_BUFFERED

    async def ask(client: httpx2.AsyncClient, url: str) -> tuple[int, int]:
        async with client.stream("POST", url, content=b"") as reply:
            most = total = 0
            async for data in reply.aiter_raw():
                most, total = max(most, len(data)), total + len(data)
                await asyncio.sleep(0.001)
        return most, total

    reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length + bytes(length)
    most, total = run(ScriptedServer([reply]), ask)
    assert total == length
    assert most < 4 * MOST_BUFFERED
