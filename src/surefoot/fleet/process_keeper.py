"""Keeps a process running: starts it again when it dies, and ends it gently to run another in its place."""

import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

LOG = logging.getLogger(__name__)
PAUSES_S = (0.5, 30.0)  # before a restart: the first one, and the longest after deaths in a row
CALM_S = 60.0  # a process that lived this long was no death in a row


@dataclass(frozen=True)
class ProcessState:
    """pid: None if it is not running right now."""

    pid: int | None
    num_restarts: int
    command: tuple[str, ...]


class ProcessKeeper:
    """Its methods may be called by any thread. The process ends with this one, even if this one is killed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._changed = threading.Condition()  # guards all that follows
        self._process: subprocess.Popen[bytes] | None = None
        self._num_starts = self._num_restarts = 0
        self._is_replaced = self._is_stopped = False
        # All starts happen on this thread: the kernel ends a process with the thread that started it.
        self._thread = threading.Thread(target=self._keep, name="process keeper", daemon=True)
        self._thread.start()

    def state(self) -> ProcessState:
        with self._changed:
            is_running = self._process is not None and self._process.poll() is None
            pid = self._process.pid if self._process is not None and is_running else None
            return ProcessState(pid, self._num_restarts, self._command)

    def replace(self, command: Sequence[str]) -> None:
        """End the process with SIGTERM, wait for its end, then run another command in its place."""
        with self._changed:
            self._command, self._is_replaced, last = tuple(command), True, self._num_starts
            self._terminate()
            self._changed.wait_for(lambda: self._num_starts > last or self._is_stopped)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._terminate()
        self._thread.join()

    def _terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()
        self._changed.notify_all()

    def _keep(self) -> None:
        pause_s = PAUSES_S[0]
        while (process := self._start()) is not None:
            began = time.monotonic()
            process.wait()
            pause_s = PAUSES_S[0] if time.monotonic() - began > CALM_S else min(2 * pause_s, PAUSES_S[1])
            with self._changed:
                if not self._changed.wait_for(lambda: self._is_replaced or self._is_stopped, timeout=pause_s):
                    LOG.warning("pid %d ended with code %d: started again", process.pid, process.returncode)
                    self._num_restarts += 1

    def _start(self) -> subprocess.Popen[bytes] | None:
        """None: the keeper was stopped."""
        with self._changed:
            if self._is_stopped:
                return None
            self._process = subprocess.Popen((*_dying_with_parent(), *self._command))
            self._num_starts, self._is_replaced = self._num_starts + 1, False
            self._changed.notify_all()
            return self._process


def _dying_with_parent() -> tuple[str, ...]:
    """Words before a command, with util-linux: without it, an orphan stays if this process is killed."""
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "TERM", "--") if found is not None else ()
