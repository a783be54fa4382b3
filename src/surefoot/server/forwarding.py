"""Requests that go on to other servers, and clients that disconnect before their request was read or answered."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.types import Receive

from surefoot.server.errors import too_large

T = TypeVar("T")
# Headers about one connection, not about the message.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)


class ClientGone(Exception):
    """The client disconnected before its answer was ready."""


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of the work. Raises ClientGone if the client disconnects first. The request's body must have been
    read."""
    working: asyncio.Future[T] = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        both: set[asyncio.Future[Any]] = {working, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, most: int | None = None) -> bytes:
    """The whole body. most: its largest number of bytes; None: the gate checks it.

    Raises ClientGone if the client disconnects before the end: a part must not pass for the whole.
    """
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if most is not None and len(body) > most:
            raise too_large(most)
        more = message.get("more_body", False)
    return bytes(body)
