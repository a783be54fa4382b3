"""The audit log and the access log: files of JSON lines for operators. A full disk fails no request."""

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.server.access.request_ids import current_id
from surefoot.server.settings import ServerSettings

LOG = logging.getLogger(__name__)
QUIET_S = 60.0  # between two complaints in the server's own log
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # never wait for a pipe's reader


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
