"""An id for each HTTP request, told to the client and to the logs; and the access log, which has a line for each."""

import re
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
ANTHROPIC_HEADER = "request-id"
_GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CURRENT: ContextVar[str] = ContextVar("request_id", default="")
MOST_PATH_CHARACTERS = 256
GONE = 499  # the client went before an answer began

Write = Callable[..., object]


def current_id() -> str:
    """Of the HTTP request in hand; empty where there is none."""
    return _CURRENT.get()


class RequestIds:
    """Wraps the whole application. A client's own id is kept if it is short and plain. write: of the access log."""

    def __init__(self, app: ASGIApp, write: Write) -> None:
        self._app = app
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        token = _CURRENT.set(given if _GIVEN.fullmatch(given) else uuid.uuid4().hex)
        reply = _Reply(send, scope["path"])
        began = time.monotonic()
        try:
            await self._app(scope, receive, reply)
        finally:
            self._write(
                client=(scope.get("client") or ("", 0))[0], method=scope["method"],
                path=scope["path"][:MOST_PATH_CHARACTERS], status=reply.status,
                ms=round(1000 * (time.monotonic() - began), 1), bytes=reply.num_bytes,
            )  # fmt: skip
            _CURRENT.reset(token)


class _Reply:
    """Puts the id into the answer's headers, and looks at what is sent."""

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        names = (HEADER, ANTHROPIC_HEADER) if path.startswith("/v1/messages") else (HEADER,)
        self._headers = [(name.encode(), current_id().encode()) for name in names]
        self.status = GONE
        self.num_bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        elif message["type"] == "http.response.body":
            self.num_bytes += len(message.get("body", b""))
        await self._send(message)
