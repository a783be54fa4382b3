"""Clients of the soak that misuse connections instead of requests."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
NUM_AT_ONCE = 4
WAITS = (0.1, 0.5, 2.0, 12.0)  # the last is longer than a head may take


@asynccontextmanager
async def connection(http: httpx.AsyncClient) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(http: httpx.AsyncClient, path: str, *lines: str) -> bytes:
    fixed = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: {http.headers['Authorization']}"]
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


async def status(reader: asyncio.StreamReader, seconds: float) -> str:
    """What the server says, if it says something in that time."""
    with suppress(TimeoutError):
        line = await asyncio.wait_for(reader.readline(), seconds)
        return line.split(b" ")[1].decode() if line else "closed"
    return "left"


async def says_nothing(http: httpx.AsyncClient, rng: random.Random) -> str:
    async with AsyncExitStack() as stack:
        for _ in range(NUM_AT_ONCE):
            await stack.enter_async_context(connection(http))
        await asyncio.sleep(rng.choice(WAITS))
    return "left"


async def dribbles_its_head(http: httpx.AsyncClient, rng: random.Random) -> str:
    async with connection(http) as (reader, writer):
        writer.write(b"GET /v1/models HTTP/1.1\r\nX-Slow: ")
        for _ in range(rng.choice((2, 20, 60))):
            writer.write(b"a")
            await asyncio.sleep(0.2)
        return await status(reader, 1.0)


async def sends_an_endless_head(http: httpx.AsyncClient, rng: random.Random) -> str:
    piece = rng.choice((b"X: a\r\n", b"a")) * 4096
    async with connection(http) as (reader, writer):
        writer.write(b"GET /v1/models HTTP/1.1\r\n")
        for _ in range(2000):
            writer.write(piece)
            await writer.drain()
            if reader.at_eof():
                break
        return await status(reader, 5.0)


async def sends_an_endless_trailer(http: httpx.AsyncClient, _: random.Random) -> str:
    async with connection(http) as (reader, writer):
        writer.write(head(http, "/v1/completions", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\nX: ")
        for _ in range(2000):
            writer.write(b"a" * 4096)
            await writer.drain()
            if reader.at_eof():
                break
        return await status(reader, 5.0)


async def withholds_a_body(http: httpx.AsyncClient, rng: random.Random) -> str:
    """Sends all but the end of it."""
    path, length = rng.choice((("/v1/files", 60 << 20), ("/v1/chat/completions", 4 << 20)))
    kind = "multipart/form-data; boundary=x" if path == "/v1/files" else "application/json"
    async with connection(http) as (reader, writer):
        writer.write(head(http, path, f"Content-Type: {kind}", f"Content-Length: {length}"))
        for _ in range(rng.choice((0, 10, 60))):
            writer.write(b"a" * (1 << 16))
            await asyncio.wait_for(writer.drain(), 5.0)
        return await status(reader, rng.choice(WAITS))


async def pipelines(http: httpx.AsyncClient, rng: random.Random) -> str:
    async with connection(http) as (reader, writer):
        writer.write((head(http, "/v1/completions", "Content-Length: 2") + b"{}") * 200)
        return await status(reader, rng.choice(WAITS))


HOSTILE_CONNECTIONS = [
    says_nothing, dribbles_its_head, sends_an_endless_head, sends_an_endless_trailer, withholds_a_body, pipelines,
]  # fmt: skip
