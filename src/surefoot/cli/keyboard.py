"""Keys of a conversation: reads messages, with a line editor at a terminal, else as plain lines; and turns off the
terminal's echo between them, restoring it at every exit.

With echo on, Ctrl-C would write ^C into an answer, and an arrow key ^[[A. Keys that are pressed during an answer wait
for the next prompt, which shows them itself. Main thread only."""

import importlib
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
PLAIN_SCREEN = "\x1b[?2004l\x1b[?25h\x1b[0m\n"  # no bracketed paste, a cursor, no colour
INPUT_FLAGS, LOCAL_FLAGS = 0, 3  # indices in termios' attributes
Read = Callable[[], str]  # raises EOFError at the end of input, KeyboardInterrupt if the user drops the line


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


def choose_reader(at_terminal: bool) -> Read:
    """The line editor is imported only where it is used, which keeps other starts quick."""
    if at_terminal and has_escape_codes():
        read: Read = importlib.import_module("surefoot.cli.line_editor").line_editor(history_path())
        return read
    return _read_at_terminal if at_terminal else _read_plainly


def history_path() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    base = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    return os.path.join(base, "surefoot", "chat_history")


def _read_at_terminal() -> str:
    """Reads a line with the terminal's own editing."""
    try:
        with echoing():
            return _read_plainly("> ", "… ")
    except (EOFError, KeyboardInterrupt):
        sys.stdout.write("\n")
        raise


def _read_plainly(prompt: str = "", continuation: str = "") -> str:
    """A line, with the lines that continue it after a backslash."""
    line = input(prompt)
    while line.endswith("\\"):
        line = f"{line[:-1]}\n{input(continuation)}"
    return line
