"""The real command in a separate process, with a terminal or without."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyte

from tests.waiting import PATIENCE_S

COMMAND = [sys.executable, "-m", "surefoot"]
ROWS = 50
ALONE = {"XDG_STATE_HOME": "/dev/null"}  # no file of the tester's own is written


def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], input=text, capture_output=True, text=True, check=False, timeout=300
    )


class Terminal:
    """The command at a pseudo-terminal. `screen` is the visible text."""

    def __init__(
        self, *words: str, term: str = "dumb", columns: int = 200, command: Sequence[str] = COMMAND,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        self.process = subprocess.Popen(
            [*command, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, **ALONE, "TERM": term, "COLUMNS": str(columns), **(environment or {})},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""
        self.raw = ""  # all that was ever written
        self.screen = pyte.Screen(columns, ROWS)
        self._stream = pyte.Stream(self.screen)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def press(self, keys: str) -> None:
        """Keys as a terminal sends them; Enter is \\r."""
        os.write(self._ours, keys.encode())

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._ours)

    def set_echo(self) -> None:
        modes = self.modes()
        modes[3] |= termios.ECHO
        termios.tcsetattr(self._ours, termios.TCSANOW, modes)

    def lines(self) -> list[str]:
        """Of the screen, empty ones left out."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, words: str, seconds: float = PATIENCE_S) -> str:
        """The output since the last wait, up to and including these words."""
        self._read_until(lambda: words in self.seen, repr(words), seconds)
        before, _, self.seen = self.seen.partition(words)
        return before + words

    def wait_for_line(self, line: str, seconds: float = PATIENCE_S) -> None:
        """Until this is the last line of the screen."""
        self._read_until(lambda: self.lines()[-1:] == [line], f"the line {line!r}", seconds)

    def _read_until(self, came: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not came():
            assert time.monotonic() < end, f"{what} did not come: {self.seen!r}"
            if select.select([self._ours], [], [], 0.2)[0]:
                try:
                    self._show(os.read(self._ours, 4096).decode(errors="replace"))
                except OSError:  # the other end is closed
                    assert came(), f"it ended without {what}: {self.seen!r}"

    def _show(self, text: str) -> None:
        self.seen += text
        self.raw += text
        self._stream.feed(text)

    def leave(self) -> int:
        return self.process.wait(timeout=300)
