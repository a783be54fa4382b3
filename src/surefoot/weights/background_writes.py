"""Writes files in a background thread at a bounded rate, from `begin` until all are written or `stop`."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

RATE = 64 << 20  # bytes per second: about a hundredth of the bytes that decode reads from memory
SYNC_BYTES = 8 << 20  # bytes between two syncs, so that a slow disk never has a long backlog
STOP_S = 2.0  # seconds that `stop` waits for a disk that does not respond

Pace = Callable[[int, int], None]  # called after each piece of a file, with its descriptor and the piece's bytes


class WriteStopped(OSError):
    """The program stops before the file is complete."""


def at_once(file: int, num_bytes: int) -> None:
    """A pace without pauses."""


class BackgroundWrites:
    """A queue of files to write in the background. The thread has normal priority: with low priority it could be
    suspended while it holds the GIL, which blocks all threads."""

    def __init__(self, rate: float = RATE) -> None:
        self._rate = rate
        self._writes: list[Callable[[Pace], None]] = []
        self._is_stopped = threading.Event()
        self._num_unsynced = 0
        self._thread: threading.Thread | None = None

    def add(self, write: Callable[[Pace], None]) -> None:
        """Queues a file. Call before `begin`."""
        self._writes.append(write)

    def begin(self) -> None:
        if self._writes and self._thread is None and not self._is_stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="surefoot-cache", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stops writing, and removes incomplete files."""
        self._is_stopped.set()
        self.join(STOP_S)

    def join(self, seconds: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while self._writes and not self._is_stopped.is_set():
            with suppress(OSError):
                self._writes.pop(0)(self._pace)

    def _pace(self, file: int, num_bytes: int) -> None:
        self._num_unsynced += num_bytes
        if self._num_unsynced >= SYNC_BYTES:
            self._num_unsynced = 0
            os.fdatasync(file)
        if self._is_stopped.wait(num_bytes / self._rate):
            raise WriteStopped("the program ends")
