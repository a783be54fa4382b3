"""The audit log and the access log: files of JSON lines for operators, with an id for each HTTP request. A full disk
fails no request."""

import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.server.settings import ServerSettings

HEADER = "x-request-id"
ANTHROPIC_HEADER = "request-id"
_GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CURRENT: ContextVar[str] = ContextVar("request_id", default="")
MOST_PATH_CHARACTERS = 256
GONE = 499  # the client disconnected before an answer began

Write = Callable[..., object]
LOG = logging.getLogger(__name__)
QUIET_S = 60.0  # between two complaints in the server's own log
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # never wait for a pipe's reader


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


class LineLog:
    """Each line is written at once, by one call. name: of the log in complaints. path: None writes nothing."""

    def __init__(self, name: str, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_lost = 0
        self._name = name
        self._path = path
        self._clock = clock
        self._last_complaint = -QUIET_S
        self._is_cut = False  # the last line was written in part
        self._descriptor = self._open()

    def write(self, **facts: Any) -> bool:
        """Write a line with these facts, the time and the current HTTP request's id. Returns whether it was written."""
        if self._descriptor is None:
            return True
        own = {"time": round(time.time(), 3), **({"request_id": current_id()} if current_id() else {})}
        line = ("\n" * self._is_cut + json.dumps({**own, **facts}) + "\n").encode()
        try:
            num_written = os.write(self._descriptor, line)
        except OSError as error:
            return self._lose(str(error))
        self._is_cut = num_written < len(line)
        return self._lose("No space left on device") if self._is_cut else True

    def reopen(self) -> None:
        """Open the path again, since logrotate may have renamed the file. If that fails, the old file stays in use."""
        try:
            descriptor = self._open()
        except OSError as error:
            LOG.error("the %s stays with its old file: %s", self._name, error)
            return
        self.close()
        self._descriptor, self._is_cut = descriptor, False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int | None:
        return None if self._path is None else os.open(self._path, FLAGS, 0o666)

    def _lose(self, reason: str) -> bool:
        self.num_lost += 1
        if self._clock() - self._last_complaint >= QUIET_S:
            self._last_complaint = self._clock()
            LOG.error("the %s has lost %d lines since the start: %s", self._name, self.num_lost, reason)
        return False


@dataclass(frozen=True)
class RequestLogs:
    audit: LineLog
    access: LineLog

    @classmethod
    def open(cls, settings: ServerSettings) -> "RequestLogs":
        return cls(LineLog("audit log", settings.audit_log), LineLog("access log", settings.access_log))

    def reopen(self) -> None:
        self.audit.reopen()
        self.access.reopen()

    def close(self) -> None:
        self.audit.close()
        self.access.close()
