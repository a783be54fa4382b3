"""Replies to clients that may disconnect, which ends their requests."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.server.bodies import unless_gone
from surefoot.server.service import RequestRun

T = TypeVar("T")
EVENTS = "text/event-stream; charset=utf-8"
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # so that proxies pass events on at once
]


class Closable(Protocol):
    """What must be closed when a client no longer reads."""

    @property
    def notices(self) -> tuple[str, ...]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class NothingToClose:
    """For events without a request in the engine."""

    notices: tuple[str, ...] = ()

    def close(self) -> None:
        """Nothing is held."""


class EventStream(Response):
    """Sends events as they come. Closes the run when they end, when the client disconnects or when it stops reading."""

    def __init__(
        self,
        run: Closable,
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
        try:
            with suppress(Exception):  # it can no longer be told to the client
                await unless_gone(receive, self._send(send))
        finally:
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


async def whole_reply(http: HttpRequest, run: RequestRun, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of the work, after which the run is closed. Raises ClientGone if the client disconnects first."""
    try:
        return await unless_gone(http.receive, work())
    finally:
        run.close()
