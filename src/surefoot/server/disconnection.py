"""Clients that disconnect: before their request was read, or before its reply was made."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


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
