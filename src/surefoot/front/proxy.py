"""Forwards a request to another server and streams the reply's bytes through, unchanged.

Knows no models: the caller chooses the server, and says what happens if it is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import httpx2
from starlette.types import Message, Scope, Send

from surefoot.server.bodies import HOP_BY_HOP

RawHeaders = list[tuple[bytes, bytes]]
MOST_IDLE, IDLE_S = 64, 10.0  # connections kept for later requests; servers close them after 30 s


@dataclass(frozen=True)
class ProxiedRequest:
    method: str
    target: bytes  # path and query, as the client wrote them
    headers: RawHeaders
    body: bytes

    @classmethod
    def of(cls, scope: Scope, body: bytes) -> "ProxiedRequest":
        query = scope.get("query_string", b"")
        target = scope.get("raw_path") or scope["path"].encode()
        headers = without(scope["headers"], HOP_BY_HOP | {b"host", b"content-length", b"expect"})
        return cls(scope["method"], target + (b"?" + query if query else b""), headers, body)

    def with_headers(self, headers: RawHeaders, dropping: Iterable[bytes] = ()) -> "ProxiedRequest":
        """The request with these headers in place of its own of the same names."""
        names = {name for name, _ in headers} | set(dropping)
        return replace(self, headers=[*without(self.headers, names), *headers])


class UpstreamLost(Exception):
    """The server is gone. reply: the head of its reply, if part of it has been passed on."""

    def __init__(self, reply: Message | None) -> None:
        super().__init__("the server is gone")
        self.reply = reply


def without(headers: Iterable[tuple[bytes, bytes]], names: Iterable[bytes]) -> RawHeaders:
    dropped = frozenset(names)
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def unix_client(path: str) -> httpx2.AsyncClient:
    """A client of the server that listens on a unix socket. Nothing times out: the server has its own deadlines."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=MOST_IDLE, keepalive_expiry=IDLE_S)
    transport = httpx2.AsyncHTTPTransport(uds=path, limits=limits, verify=False)  # no TLS: reads no certificates
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=None)


async def forward(
    client: httpx2.AsyncClient, request: ProxiedRequest, send: Send, dropping: Iterable[bytes] = ()
) -> None:
    """Send the request and pass the reply on as it comes, without the headers to be dropped. Raises UpstreamLost."""
    head: Message | None = None
    try:
        url = client.base_url.copy_with(raw_path=request.target)
        async with client.stream(request.method, url, headers=request.headers, content=request.body) as reply:
            headers = without(reply.headers.raw, HOP_BY_HOP.union(dropping))
            started: Message = {"type": "http.response.start", "status": reply.status_code, "headers": headers}
            await send(started)
            head = started
            async for chunk in reply.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except httpx2.TransportError as error:
        raise UpstreamLost(head) from error
    await send({"type": "http.response.body", "body": b"", "more_body": False})
