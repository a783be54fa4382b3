"""Replies to clients that may disconnect, which ends their requests."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.server.service import RequestRun

T = TypeVar("T")
EVENTS = "text/event-stream; charset=utf-8"
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # so that proxies pass events on at once
]


class ClientGone(Exception):
    """The client disconnected before its answer was ready."""


class EventStream(Response):
    """Sends events as they come. Closes the run when they end, when the client disconnects or when it stops reading."""

    def __init__(
        self,
        run: RequestRun,
        events: AsyncGenerator[bytes, None],
        read_s: float,
        content_type: str = EVENTS,
    ) -> None:
        super().__init__()
        more = {"content-type": content_type, **notice_headers(run.notices)}
        self._all_headers = [*HEADERS, *((name.lower().encode(), value.encode()) for name, value in more.items())]
        self._run = run
        self._events = events
        self._read_s = read_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()
            self._run.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._all_headers})
        async for event in self._events:
            async with asyncio.timeout(self._read_s):
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def notice_headers(notices: Sequence[str]) -> dict[str, str]:
    """A Warning header with the parts of the request that were not honoured. Clients that ignore it are not
    disturbed."""
    return {"Warning": ", ".join(f'299 surefoot "{notice}"' for notice in notices)} if notices else {}


async def unless_gone(http: HttpRequest, run: RequestRun, work: Callable[[], Awaitable[T]]) -> T:
    """The result of the work. Raises ClientGone if the client disconnects first."""
    working: asyncio.Future[T] = asyncio.ensure_future(work())
    leaving = asyncio.ensure_future(_gone(http.receive))
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
        run.close()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
