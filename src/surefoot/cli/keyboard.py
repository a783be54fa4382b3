"""Turns off the terminal's echo of keys during a conversation, and restores it at every exit.

With echo on, Ctrl-C would write ^C into an answer, and an arrow key ^[[A. Keys that are pressed during an answer wait
for the next prompt, which shows them itself. Main thread only.
"""

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
PLAIN_SCREEN = "\x1b[?2004l\x1b[?25h\x1b[0m\n"  # no bracketed paste, a cursor, no colour
INPUT_FLAGS, LOCAL_FLAGS = 0, 3  # indices in termios' attributes


@contextmanager
def quiet_terminal() -> Iterator[None]:
    """Turns echo off inside the block. The modes are restored afterwards, also if a signal ends the process inside."""
    modes = termios.tcgetattr(sys.stdin.fileno())

    def end(number: int, frame: FrameType | None) -> None:
        _restore(modes)
        os.write(sys.stdout.fileno(), PLAIN_SCREEN.encode() if has_escape_codes() else b"\n")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # A shell that had the terminal in between (Ctrl-Z, fg) leaves the echo on.
    handlers = {signal.SIGCONT: signal.signal(signal.SIGCONT, lambda number, frame: _be_quiet())}
    handlers |= {number: signal.signal(number, end) for number in ENDINGS}
    try:
        _be_quiet()
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _restore(modes)


@contextmanager
def echoing() -> Iterator[None]:
    """Turns echo on again inside `quiet_terminal`, so that the terminal shows the line that is typed."""
    handler = signal.signal(signal.SIGCONT, signal.SIG_DFL)
    try:
        _set_echo(True)
        yield
    finally:
        _set_echo(False)
        signal.signal(signal.SIGCONT, handler)


def has_escape_codes() -> bool:
    return os.environ.get("TERM", "dumb") != "dumb"


def _be_quiet() -> None:
    _set_echo(False)
    if has_escape_codes():  # the line editor is to get keys as they were pressed: Ctrl-D, Alt-Enter, Backspace
        modes = termios.tcgetattr(sys.stdin.fileno())
        modes[LOCAL_FLAGS] &= ~termios.ICANON
        modes[INPUT_FLAGS] &= ~termios.ICRNL
        _restore(modes)


def _set_echo(on: bool) -> None:
    modes = termios.tcgetattr(sys.stdin.fileno())
    modes[LOCAL_FLAGS] = modes[LOCAL_FLAGS] | termios.ECHO if on else modes[LOCAL_FLAGS] & ~termios.ECHO
    _restore(modes)


def _restore(modes: list[Any]) -> None:
    termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
