"""Writes blocks to the disk in a thread of its own, at a bounded rate."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from surefoot.disk_cache import BlockName, BlockStore

RATE = 128 << 20  # bytes a second: about a fiftieth of what decoding reads from memory
QUEUE_BYTES = 32 << 20  # copies that wait for the disk
LOOK_S = 1.0  # between two looks for requests of other processes
PAUSE_S = 30.0  # without writing, after the disk has failed
LOG = logging.getLogger(__name__)


class BlockWriter:
    """Copies of blocks on their way to the store. A disk that fails loses blocks, and disturbs nobody else."""

    def __init__(self, store: BlockStore, look: Callable[[], None] = lambda: None) -> None:
        """look: called about once a second, between two writes."""
        self._store = store
        self._look = look
        self._last_look = time.monotonic()
        self._queue: deque[tuple[BlockName, memoryview]] = deque()
        self._num_bytes = 0  # in the queue, and being written
        self._changed = threading.Condition()
        self._is_closed = False
        self._paused_until = 0.0
        self._thread = threading.Thread(target=self._run, name="surefoot-cache-writer", daemon=True)
        self._thread.start()

    @property
    def room(self) -> int:
        """Bytes that may be offered now."""
        return QUEUE_BYTES - self._num_bytes

    @property
    def cpu_s(self) -> float:
        """Seconds of a processor that the thread has taken."""
        ident = self._thread.ident
        if ident is None or not self._thread.is_alive():
            return 0.0
        return time.clock_gettime(time.pthread_getcpuclockid(ident))

    @property
    def is_paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def offer(self, name: BlockName, payload: memoryview) -> None:
        with self._changed:
            self._queue.append((name, payload))
            self._num_bytes += len(payload)
            self._changed.notify_all()

    def wait_for_room(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.room > 0, seconds)

    def flush(self, seconds: float) -> bool:
        """Whether all that was offered has been written within the time, or given up."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._num_bytes, seconds)

    def drop(self, namespace: bytes) -> None:
        """Called by `look`: no write is under way then. What waits to be written for a namespace is not."""
        with self._changed:
            self._queue = deque(block for block in self._queue if block[0].namespace != namespace)
            self._num_bytes = sum(len(payload) for _, payload in self._queue)
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        self.flush(seconds)
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (block := self._next()) is not None:
            name, payload = block
            began = time.monotonic()
            if not self.is_paused:
                self._write(name, payload)
            with self._changed:
                self._num_bytes -= len(payload)
                self._changed.notify_all()
            time.sleep(max(0.0, len(payload) / RATE - (time.monotonic() - began)))
            self._look_if_due()

    def _next(self) -> tuple[BlockName, memoryview] | None:
        """None at the end. When there is nothing to write, the index learns of what was."""
        if not self._queue:
            self._store.flush()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._queue or self._is_closed, LOOK_S):
                    return self._queue.popleft() if self._queue else None
            self._look_if_due()

    def _look_if_due(self) -> None:
        if time.monotonic() - self._last_look >= LOOK_S and not self.is_paused:
            self._last_look = time.monotonic()
            with self._pausing():
                self._look()

    def _write(self, name: BlockName, payload: memoryview) -> None:
        with self._pausing():
            self._store.write(name, payload)

    @contextmanager
    def _pausing(self) -> Iterator[None]:
        """Whatever happens, the thread goes on."""
        try:
            yield
        except Exception as error:
            LOG.warning("%s; nothing is written for %g s", error, PAUSE_S, exc_info=not isinstance(error, OSError))
            self._paused_until = time.monotonic() + PAUSE_S
