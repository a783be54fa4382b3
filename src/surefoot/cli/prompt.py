"""Where a conversation's lines come from: a line editor at a terminal, else plain lines."""

import importlib
import os
import sys
from collections.abc import Callable

from surefoot.cli.keyboard import echoing, has_escape_codes

Read = Callable[[], str]  # raises EOFError at the end and KeyboardInterrupt for a line that is dropped


def choose_reader(at_terminal: bool) -> Read:
    """The line editor is loaded only where it is used: elsewhere a start stays quick."""
    if at_terminal and has_escape_codes():
        read: Read = importlib.import_module("surefoot.cli.line_editor").line_editor(history_path())
        return read
    return _read_at_terminal if at_terminal else _read_plainly


def history_path() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    base = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    return os.path.join(base, "surefoot", "chat_history")


def _read_at_terminal() -> str:
    """With the terminal's own editing."""
    try:
        with echoing():
            return _read_plainly("> ", "… ")
    except (EOFError, KeyboardInterrupt):
        sys.stdout.write("\n")
        raise


def _read_plainly(prompt: str = "", continuation: str = "") -> str:
    """A line, with those that it goes on in."""
    line = input(prompt)
    while line.endswith("\\"):
        line = f"{line[:-1]}\n{input(continuation)}"
    return line
