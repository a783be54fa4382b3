"""The gateway's HTTP connections to replicas: a transport for httpx2 that spends little processor time on a request.

One request at a time on a connection, HTTP/1.1. httptools parses, as it does in the servers. httpx2's own transport
would take most of a gateway's processor time (docs/design/fleet.md has the figures).
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

import httptools
import httpx2

IDLE_S = 10.0  # for which an unused connection is kept; servers close them after 30 s
MOST_BUFFERED = 1 << 20  # bytes that nobody has read yet, at which a replica must wait
MOST_HEAD_BYTES = 64 << 10  # of a reply's headers and trailers together
MOST_HEADERS = 128
PORTS = {b"http": 80, b"https": 443}

Place = tuple[bytes, bytes, int]  # scheme, host, port


class MalformedReply(httpx2.RemoteProtocolError):
    """What the replica sent is not HTTP, or has too large a head."""


class ReplicaTransport(httpx2.AsyncBaseTransport):
    """Connections are kept for later requests. The number of connections is not limited."""

    def __init__(self) -> None:
        self._idle: dict[Place, list[ReplicaConnection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises httpx2.TransportError."""
        url = request.url
        place = url.raw_scheme, url.raw_host, url.port or PORTS[url.raw_scheme]
        connection = self._take_idle(place) or await self._connect(place, request.extensions.get("timeout", {}))
        try:
            connection.send(_encode_head(request) + await request.aread())
            status, headers = await connection.head()
        except BaseException:
            connection.close()
            raise
        return httpx2.Response(status, headers=headers, stream=ReplyBody(connection, self, place))

    def _take_idle(self, place: Place) -> "ReplicaConnection | None":
        """The connection that was used last."""
        idle = self._idle.get(place, [])
        while idle:
            connection = idle.pop()
            if connection.is_open and time.monotonic() - connection.used_at < IDLE_S:
                return connection
            connection.close()
        return None

    async def _connect(self, place: Place, timeouts: dict[str, float | None]) -> "ReplicaConnection":
        scheme, host, port = place
        loop, name = asyncio.get_running_loop(), host.decode("ascii").strip("[]")
        if scheme == b"https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if scheme == b"https" else None
        try:
            async with asyncio.timeout(timeouts.get("connect")):
                _, connection = await loop.create_connection(ReplicaConnection, name, port, ssl=tls)
                return connection
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("no connection in time") from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error

    def keep(self, place: Place, connection: "ReplicaConnection") -> None:
        """Take a connection back after its reply."""
        if connection.is_reusable:
            connection.used_at = time.monotonic()
            self._idle.setdefault(place, []).append(connection)
        else:
            connection.close()

    async def aclose(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()


async def read_reply(reply: httpx2.Response, most: int) -> bytes:
    """The body, as it was sent. Raises ValueError if it has more bytes."""
    data = bytearray()
    async for piece in reply.aiter_raw():
        data += piece
        if len(data) > most:
            raise ValueError(f"a reply of more than {most} bytes")
    return bytes(data)


def _encode_head(request: httpx2.Request) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in request.headers.raw]
    return b"%s %s HTTP/1.1\r\n%s\r\n" % (request.method.encode("ascii"), request.url.raw_path, b"".join(lines))


class ReplyBody(httpx2.AsyncByteStream):
    """The body of a reply, as it comes. Its connection is kept if it was read to its end, else closed."""

    def __init__(self, connection: "ReplicaConnection", transport: ReplicaTransport, place: Place) -> None:
        self._connection = connection
        self._transport = transport
        self._place = place

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._connection.read():
            yield data

    async def aclose(self) -> None:
        self._transport.keep(self._place, self._connection)


class ReplicaConnection(asyncio.Protocol):
    """A connection, and the reply that comes over it."""

    def __init__(self) -> None:
        self.used_at = 0.0
        self._transport: asyncio.Transport | None = None  # None: the connection is closed
        self._parser: httptools.HttpResponseParser | None = None  # None: no request was sent yet
        self._headers: list[tuple[bytes, bytes]] = []
        self._num_head_bytes = 0
        self._num_unparsed = 0  # bytes since the parser last told of something
        self._chunks: deque[bytes] = deque()
        self._num_buffered = 0
        self._has_head = self._is_whole = self._stays_open = False
        self._failure: httpx2.TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """The reply was read to its end: what is left of one must not begin the next."""
        return self.is_open and self._is_whole and self._stays_open and not self._chunks

    # ---- for the transport ----

    def send(self, data: bytes) -> None:
        """Send a request. Its reply is read from here on."""
        if self._transport is None:
            raise httpx2.WriteError("the connection is closed")
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._num_head_bytes, self._num_unparsed = [], 0, 0
        self._has_head = self._is_whole = False
        self._transport.write(data)

    async def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        while not self._has_head:
            await self._more()
        assert self._parser is not None
        return self._parser.get_status_code(), self._headers

    async def read(self) -> bytes:
        """What has come since; empty at the end."""
        while not self._chunks and not self._is_whole:
            await self._more()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._num_buffered = 0
        if self._transport is not None:
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _more(self) -> None:
        """Wait until something has come. Raises httpx2.TransportError."""
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- called by asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            if self._parser is None or self._is_whole:
                raise httptools.HttpParserError("a reply that nobody asked for")
            self._num_unparsed += len(data)
            self._parser.feed_data(data)
            if self._num_unparsed > MOST_HEAD_BYTES:
                raise httptools.HttpParserError("too long a line")
        except httptools.HttpParserError as error:
            self._fail(MalformedReply(str(error.__context__ or error)))
        except httptools.HttpParserUpgrade:
            self._fail(MalformedReply("a change of protocol that nobody asked for"))
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(httpx2.ReadError(str(error or "the replica closed the connection")))
        self._wake()

    def _fail(self, failure: httpx2.TransportError) -> None:
        self._failure = self._failure or failure
        self.close()

    # ---- called by httptools ----

    def on_message_begin(self) -> None:
        if self._is_whole:
            raise httptools.HttpParserError("a second reply to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_unparsed = 0
        self._num_head_bytes += len(name) + len(value)
        if self._num_head_bytes > MOST_HEAD_BYTES or len(self._headers) >= MOST_HEADERS:
            raise httptools.HttpParserError("too large a head")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        self._num_unparsed = 0
        self._chunks.append(data)
        self._num_buffered += len(data)
        if self._num_buffered > MOST_BUFFERED and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self._is_whole, self._stays_open = True, self._parser.should_keep_alive()
