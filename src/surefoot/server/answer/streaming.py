"""Replies to clients that may disconnect, which ends their requests."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from surefoot.server.disconnection import unless_gone
from surefoot.server.service import RequestRun

T = TypeVar("T")
BEAT_S = 5.0  # of silence, after which a stream shows that it lives
EVENTS = "text/event-stream; charset=utf-8"
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # so that proxies pass events on at once
]


Beat = Callable[[], Awaitable[bytes]]
BEAT = "surefoot.beat"  # in a message of a body: the part depends on time, and belongs to no answer


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
        beat: Beat | None = None,
    ) -> None:
        """beat: what is sent after each BEAT_S of silence; None: nothing."""
        super().__init__()
        self._beat = beat
        self._sent_at = 0.0
        self._is_sending = False
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
        beating = asyncio.ensure_future(self._beat_on(send))
        try:
            async for event in self._events:
                await self._send_part(send, event)
        finally:
            beating.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _send_part(self, send: Send, data: bytes, **more: Any) -> None:
        self._is_sending = True
        async with asyncio.timeout(self._read_s):
            await send({"type": "http.response.body", "body": data, "more_body": True, **more})
        self._sent_at, self._is_sending = time.monotonic(), False

    async def _beat_on(self, send: Send) -> None:
        self._sent_at = time.monotonic()
        while self._beat is not None:
            await asyncio.sleep(max(0.0, self._sent_at + BEAT_S - time.monotonic()))
            if time.monotonic() < self._sent_at + BEAT_S:
                continue
            data = await self._beat()
            if data and not self._is_sending:
                await self._send_part(send, data, **{BEAT: True})
            self._sent_at = time.monotonic()


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
