"""The real command in a process of its own, at a terminal or not."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from types import TracebackType

COMMAND = [sys.executable, "-m", "surefoot"]


def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], input=text, capture_output=True, text=True, check=False, timeout=120
    )


class Terminal:
    """The command at a terminal that we hold the other end of."""

    def __init__(self, *words: str, term: str = "dumb") -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": term, "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, words: str, seconds: float = 60) -> str:
        """What was written up to and with these words, from where the last wait ended."""
        end = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < end, f"{words!r} did not come: {self.seen!r}"
            if select.select([self._ours], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._ours, 4096).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert words in self.seen, f"it ended without {words!r}: {self.seen!r}"
        before, _, self.seen = self.seen.partition(words)
        return before + words

    def leave(self) -> int:
        return self.process.wait(timeout=60)
