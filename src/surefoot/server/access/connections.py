"""Limits on connections: how many, how many from one address, and how long each may take to send a request.

A connection waits (for the head of a request) or works (on a request whose head has arrived). A waiting connection can
be closed at any time to make room. A working one ends by the limits of the gate and the service.
"""

import asyncio
import ipaddress
import json
import math
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from surefoot.server.access.gate import PROBES, send_error
from surefoot.server.errors import ApiError

MOST_CONNECTIONS = 2048
MOST_RESERVED = 32
MOST_FILES = 1 << 16  # to which the soft limit of open files is raised
SWEEP_S = 0.5
FRAMING_PER_BODY_BYTE = 8  # a chunk of one byte takes five bytes around it
MOST_DISCARDED_BYTES = 4 << 20  # of what still comes after a refusal
NETWORK_BITS = 64  # prefix of an IPv6 address that counts as one client


@dataclass(frozen=True)
class ConnectionLimits:
    most: int = MOST_CONNECTIONS  # connections for requests of any kind
    reserved: int = MOST_RESERVED  # further connections, for /health and /ready alone
    head_s: float = 10.0  # from a head's first byte to its last
    idle_s: float = 30.0  # without a byte, between requests or before the first
    unread_s: float = 30.0  # for which a client may leave its answer unread
    linger_s: float = 2.0  # for a client to read a refusal, or to send the rest of a refused request
    head_bytes: int = 64 << 10  # of a request's line and headers together
    num_headers: int = 100

    @property
    def most_of_address(self) -> int:
        """Half of them: all clients behind a proxy share its address."""
        return max(1, self.most // 2)

    @classmethod
    def for_files(cls, num_free: int) -> "ConnectionLimits":
        """Limits that use half of the free descriptors. The other half is for files, pipes and closing connections."""
        total = max(4, min(MOST_CONNECTIONS + MOST_RESERVED, num_free // 2))
        reserved = max(2, min(MOST_RESERVED, total // 8))
        return cls(most=total - reserved, reserved=reserved)


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns how many more files may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return (MOST_FILES if soft == resource.RLIM_INFINITY else soft) - len(os.listdir("/proc/self/fd"))


def network_of(address: str) -> str:
    """The network that counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> NETWORK_BITS << NETWORK_BITS, 128 - NETWORK_BITS)))


class Entrant(Protocol):
    """A connection as it is counted, before or after its TLS handshake."""

    network: str
    loop: asyncio.AbstractEventLoop

    def abort(self) -> None:
        """Close it at once."""

    def check_time(self, now: float) -> None:
        """Close it if it is late."""


class Connections:
    """All open connections. Lives on the event loop."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.num_closed = 0  # to make room for others
        self._open: dict[str, set[Entrant]] = {}  # by network
        self._waiting: dict[str, dict[Entrant, None]] = {}  # by network, the longest waiting first
        self._reserved: dict[Entrant, None] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def num_open(self) -> int:
        return sum(map(len, self._open.values())) + len(self._reserved)

    def enter(self, connection: Entrant) -> bool:
        """Admit a connection; where there is no room, close the longest waiting one. False: for /health and /ready
        alone."""
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(SWEEP_S, self._sweep, connection.loop)
        if self._make_room(connection.network):
            self._open.setdefault(connection.network, set()).add(connection)
            self.waits(connection)
            return True
        if len(self._reserved) >= self.limits.reserved:
            self._close(next(iter(self._reserved)))
        self._reserved[connection] = None
        return False

    def leave(self, connection: Entrant) -> None:
        self.works(connection)
        self._reserved.pop(connection, None)
        own = self._open.get(connection.network, set())
        own.discard(connection)
        if not own:
            self._open.pop(connection.network, None)

    def waits(self, connection: Entrant) -> None:
        if connection in self._open.get(connection.network, ()):
            self._waiting.setdefault(connection.network, {})[connection] = None

    def works(self, connection: Entrant) -> None:
        waiting = self._waiting.get(connection.network, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.network, None)

    def _make_room(self, network: str) -> bool:
        if len(self._open.get(network, ())) >= self.limits.most_of_address:
            return self._close_waiting(network)
        if sum(map(len, self._open.values())) < self.limits.most:
            return True
        return self._close_waiting(max(self._waiting, key=lambda other: len(self._waiting[other]), default=network))

    def _close_waiting(self, network: str) -> bool:
        longest = next(iter(self._waiting.get(network, ())), None)
        if longest is not None:
            self._close(longest)
        return longest is not None

    def _close(self, connection: Entrant) -> None:
        self.num_closed += 1
        self.leave(connection)
        connection.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock()
        connections = [*self._reserved, *(connection for own in self._open.values() for connection in own)]
        for connection in connections:
            connection.check_time(now)
        self._sweeping = loop.call_later(SWEEP_S, self._sweep, loop) if connections else None


class HeadTooLarge(Exception):
    """A request's head has more bytes or headers than allowed."""


class Pipelined(Exception):
    """A second request came before the first was answered."""


class Connection(HttpToolsProtocol):
    """A connection with limits. Inherits because uvicorn's protocol receives its parser's callbacks itself."""

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.network = ""
        self._connections = connections
        self._limits = connections.limits
        self._is_reserved = False
        self._deadline = math.inf
        self._is_in_head = False  # a head has arrived in part
        self._is_body_whole = True
        self._is_deaf = False  # further bytes are discarded
        self._is_leaving = False
        self._head_size = self._num_headers = 0
        self._framing = 0  # bytes since the last end of a head or body, without bytes of bodies
        self._num_body = 0  # bytes of bodies in the data being parsed
        self._has_boundary = False  # a head or body ends in the data being parsed
        self._num_discarded = 0

    # ---- callbacks of the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.network = network_of(self.client[0] if self.client else "")
        self._deadline = self._now + self._limits.idle_s
        self._is_reserved = not self._connections.enter(self)
        if self._is_reserved:
            self._deadline = self._now + self._limits.head_s  # in all
            self.app = _only_probes(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.parser is None:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        if self._is_body_whole and not self._is_working and not self._is_in_head:
            self._is_in_head = True
            self._set_deadline(self._limits.head_s)
        self._num_body, self._has_boundary = 0, False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if nothing but HTTP/1.1 had been asked for
        except httptools.HttpParserError as error:
            self._on_parser_error(error.__context__)
        else:
            self._check_framing(len(data))

    def _on_parser_error(self, cause: BaseException | None) -> None:
        if isinstance(cause, Pipelined):
            # Uvicorn would not read on, and so not notice that the client has gone. Clients send it again.
            self.cycle.keep_alive = False
            self._is_deaf = True
        else:
            self._refuse(431 if isinstance(cause, HeadTooLarge) else 400)

    def _check_framing(self, length: int) -> None:
        """Bound heads and trailers that arrive in many parts: the parser reports a field only once it is complete."""
        framing = self._framing + length - self._num_body * (1 + FRAMING_PER_BODY_BYTE)
        self._framing = 0 if self._has_boundary else max(0, framing)
        if self._framing > self._limits.head_bytes:
            self._refuse(431)

    def _discard(self, length: int) -> None:
        self._num_discarded += length
        if self._num_discarded > MOST_DISCARDED_BYTES:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_deadline(min(self._limits.unread_s, self._deadline - self._now))

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_working:
            self._set_deadline(math.inf)

    # ---- callbacks of the parser ----

    def on_message_begin(self) -> None:
        self._head_size = self._num_headers = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_headers += 1
        self._grow_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_working:
            raise Pipelined
        self._has_boundary, self._is_in_head, self._is_body_whole = True, False, False
        self._connections.works(self)
        self._set_deadline(math.inf)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_boundary = self._is_body_whole = True
        super().on_message_complete()
        if not self._is_working:
            self._wait()

    def _grow_head(self, length: int) -> None:
        self._head_size += length
        if self._head_size > self._limits.head_bytes or self._num_headers > self._limits.num_headers:
            raise HeadTooLarge

    # ---- time ----

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_working or self.transport.is_closing():
            return
        if self._is_reserved:
            self._close_when_read()
        elif self._is_body_whole:
            self._wait()
        else:  # refused before the whole body had arrived
            self._set_deadline(self._limits.linger_s)

    def _wait(self) -> None:
        self._connections.waits(self)
        self._set_deadline(self._limits.idle_s)

    def check_time(self, now: float) -> None:
        """End the connection if its deadline has passed. Called every SWEEP_S."""
        if self.transport.is_closing() and not self._is_leaving:
            self._is_leaving = True  # the client may never read the rest of its answer
            self._set_deadline(self._limits.unread_s)
        if now < self._deadline:
            return
        if self._is_leaving or self._is_working:
            self.transport.abort()
        elif self._is_in_head:
            self._refuse(408)
        else:
            self.transport.close()

    @property
    def _is_working(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _now(self) -> float:
        return self._connections.clock()

    def _set_deadline(self, seconds: float) -> None:
        """A reserved connection keeps its first deadline."""
        if not self._is_reserved or self._is_leaving:
            self._deadline = self._now + seconds

    # ---- refusals ----

    def _refuse(self, status: int) -> None:
        """Answer with an error and close. In the middle of an answer no error can be sent: the connection just
        closes."""
        if not self._is_working:
            self.transport.write(_refusal(status))
        self._close_when_read()

    def _close_when_read(self) -> None:
        """Close once the client has read the answer. Closing with unread bytes would reset the connection and lose
        it."""
        self._is_deaf = self._is_leaving = True
        self._connections.works(self)
        self._set_deadline(self._limits.linger_s)
        self._unset_keepalive_if_required()
        if self._is_working or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()


def _refusal(status: int) -> bytes:
    advice = {
        400: "this is not HTTP/1.1: check the address and the client",
        408: "the head of the request took too long to arrive: send it at once",
        431: "the head of the request is too large: send fewer or shorter headers",
    }
    body = json.dumps(ApiError(status, advice[status]).as_openai())
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    return "\r\n".join([*head, "", body]).encode()


def _only_probes(app: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
        else:
            error = ApiError(503, "the server has no free connection: try again", headers={"Retry-After": "5"})
            await send_error(scope, send, error)

    return serve
