"""Reads the messages of a conversation: with a line editor at a terminal, else as plain lines."""

import importlib
import os
import sys
from collections.abc import Callable

from surefoot.cli.keyboard import echoing, has_escape_codes

Read = Callable[[], str]  # raises EOFError at the end of input, KeyboardInterrupt if the user drops the line


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
