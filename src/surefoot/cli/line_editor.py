"""A line editor with history and messages of several lines, by prompt_toolkit."""

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output

from surefoot.machine.atomic_write import atomic_write

HISTORY_BYTES = 1 << 20  # of the file; the oldest entries go first
ENTRY_BYTES = 1 << 16  # longer messages are not kept
ENTRY_START = b"\n# "  # of prompt_toolkit's own format; lines of the text begin with +


def line_editor(history: str) -> Callable[[], str]:
    """A function that reads one message at each call. It raises the same exceptions as `input`."""
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"), enable_bell=False)
    output.enable_cpr = False  # a terminal's late answer would appear as text
    session: PromptSession[str] = PromptSession(
        "> ", prompt_continuation="… ", multiline=True, key_bindings=_keys(), history=open_history(Path(history)),
        output=output, enable_suspend=True, reserve_space_for_menu=0,
    )  # fmt: skip
    return session.prompt


def _keys() -> KeyBindings:
    keys = KeyBindings()
    in_text = has_focus(DEFAULT_BUFFER)  # not in a search of the history

    @keys.add("enter", filter=in_text)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=in_text)
    def go_on(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


class _BoundedHistory(FileHistory):
    """History in a file. A full disk or a missing folder does not end the conversation."""

    def store_string(self, string: str) -> None:
        if len(string.encode(errors="replace")) <= ENTRY_BYTES:
            with contextlib.suppress(OSError):
                super().store_string(string)


def open_history(path: Path) -> History:
    """History in a file that only its owner may read; in memory if there can be no such file."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        with open(file, "r+b") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return InMemoryHistory()
            os.fchmod(file, 0o600)
            if (size := os.fstat(file).st_size) > HISTORY_BYTES:
                opened.seek(size - HISTORY_BYTES // 2)
                kept = opened.read(HISTORY_BYTES // 2)
                _replace(path, kept[max(0, kept.find(ENTRY_START)) :])
    except OSError:
        return InMemoryHistory()
    return _BoundedHistory(path)


def _replace(path: Path, data: bytes) -> None:
    with atomic_write(path) as beside:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as opened:
            opened.write(data)
