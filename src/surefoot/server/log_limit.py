"""A bound on what others can have written to the log: so many lines a minute of each kind."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LINES_A_MINUTE = 20
WINDOW_S = 60.0
MOST_KINDS = 1000


@dataclass
class _Kind:
    """began: of the minute that counts now. num_lines, num_left_out: in it."""

    began: float
    num_lines: int = 0
    num_left_out: int = 0


class LogLimit(logging.Filter):
    """For a handler. Lines are of one kind if they have one logger, level and text before arguments are put in."""

    def __init__(self, most: int = LINES_A_MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most = most
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], _Kind] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            kind, num_before = self._find((record.name, record.levelno, str(record.msg)[:200]))
            kind.num_lines += 1
            if kind.num_lines > self._most:
                kind.num_left_out += 1
                return False
        if num_before:
            _add(record, f" ({num_before} more like it were left out)")
        if kind.num_lines == self._most:
            _add(record, " (more like it are left out for a minute)")
        return True

    def _find(self, name: tuple[str, int, str]) -> tuple[_Kind, int]:
        """The kind, and how many were left out in its last minute if a new one begins."""
        now = self._clock()
        kind = self._kinds.get(name)
        if kind is not None and now - kind.began < WINDOW_S:
            return kind, 0
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        fresh = self._kinds[name] = _Kind(now)
        return fresh, kind.num_left_out if kind is not None else 0


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = record.getMessage() + text, None
