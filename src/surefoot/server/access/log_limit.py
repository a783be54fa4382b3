"""The log of every command that serves, bounded: clients can make it log LINES_A_MINUTE lines a minute of each kind."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LINES_A_MINUTE = 20
WINDOW_S = 60.0
MOST_KINDS = 1000
CHATTY = ("httpx2", "uvicorn")  # a line for each request


@dataclass
class _Minute:
    """What happened to lines of one kind in the current minute."""

    began: float
    num_lines: int = 0  # lines that came
    num_left_out: int = 0  # of these, lines that were not logged


class LogLimit(logging.Filter):
    """A filter for handlers. Lines with the same logger, level and format string are of one kind."""

    def __init__(self, most: int = LINES_A_MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most = most
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], _Minute] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            minute, num_before = self._find((record.name, record.levelno, str(record.msg)[:200]))
            minute.num_lines += 1
            if minute.num_lines > self._most:
                minute.num_left_out += 1
                return False
        if num_before:
            _add(record, f" ({num_before} more like it were left out)")
        if minute.num_lines == self._most:
            _add(record, " (more like it are left out for a minute)")
        return True

    def _find(self, name: tuple[str, int, str]) -> tuple[_Minute, int]:
        """The kind's current minute, and if that begins now, how many lines were left out in the one before."""
        now = self._clock()
        before = self._kinds.get(name)
        if before is not None and now - before.began < WINDOW_S:
            return before, 0
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        fresh = self._kinds[name] = _Minute(now)
        return fresh, before.num_left_out if before is not None else 0


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = record.getMessage() + text, None


def start_logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
