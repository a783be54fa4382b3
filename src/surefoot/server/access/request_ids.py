"""An id for each HTTP request, in its reply's headers and in the logs; and the access log, a line for each request."""

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
GONE = 499  # the client disconnected before an answer began

Write = Callable[..., object]


def current_id() -> str:
    """The id of the current HTTP request; empty outside of requests."""
    return _CURRENT.get()


class RequestIds:
    """Wraps the whole application. A client's own id is kept if it is short and plain. write: writes the access log."""

    def __init__(self, app: ASGIApp, write: Write) -> None:
        self._app = app
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client_id = Headers(scope=scope).get(HEADER, "")
        token = _CURRENT.set(client_id if _GIVEN.fullmatch(client_id) else uuid.uuid4().hex)
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
    """Adds the id to the reply's headers; notes its status and size."""

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
