"""`surefoot chat` at a real terminal, with real keys."""

import os
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.cli.line_editor import ENTRY_BYTES, HISTORY_BYTES, open_history
from tests.cli.process import Terminal
from tests.cli.scripted_chat import HOSTILE, LONG, WIDE

SCRIPTED = [sys.executable, "-m", "tests.cli.scripted_chat"]
UP, CTRL_C, ALT_ENTER, CTRL_D = "\x1b[A", "\x03", "\x1b\r", "\x04"


def pasted(text: str) -> str:
    """As terminals send it that know bracketed paste."""
    return f"\x1b[200~{text}\x1b[201~"


def begin(state: Path | None = None, columns: int = 80) -> Terminal:
    environment = {"XDG_STATE_HOME": str(state)} if state else {}
    return Terminal(command=SCRIPTED, term="xterm-256color", columns=columns, environment=environment)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with begin(tmp_path) as terminal:
        terminal.wait_for_line(">")
        yield terminal


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with begin(tmp_path_factory.mktemp("state")) as terminal:
        terminal.wait_for_line(">")
        yield terminal


@pytest.fixture
def shared(running: Terminal) -> Terminal:
    """At an empty prompt on an empty screen; for tests that do not leave."""
    running.screen.reset()
    running.press(CTRL_C)
    running.wait_for_line(">")
    return running


def test_several_lines_are_one_message(terminal: Terminal) -> None:
    """Pasted, by a backslash at the end, by Alt-Enter; and the whole of it comes back with the arrow key."""
    terminal.press(pasted("one\ntwo") + "\r")
    terminal.wait_for("heard 'one\\ntwo'.")
    terminal.press("three\\\rfour\r")
    terminal.wait_for("heard 'three\\nfour'.")
    terminal.press(f"five{ALT_ENTER}six\r")
    terminal.wait_for("heard 'five\\nsix'.")
    terminal.press(f"{UP}!\r")
    terminal.wait_for("heard 'five\\nsix!'.")
    assert "… six!" in terminal.lines()
    assert "^" not in "".join(terminal.lines())
    terminal.press("/help\r")
    assert "Alt-Enter" in terminal.wait_for("Ctrl-R")
    terminal.press(CTRL_D)
    assert terminal.leave() == 0


def test_history_is_kept_for_the_next_conversation_and_only_for_its_owner(tmp_path: Path) -> None:
    for keys, heard in (("a first message\r", "a first message"), (f"{UP} again\r", "a first message again")):
        with begin(tmp_path) as terminal:
            terminal.wait_for_line(">")
            terminal.press(keys)
            terminal.wait_for(f"heard '{heard}'.")
            terminal.wait_for_line(">")
            terminal.press(CTRL_D)
            assert terminal.leave() == 0
    file = tmp_path / "surefoot" / "chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_editing_inside_a_line(shared: Terminal) -> None:
    shared.press("held\x1b[D\x1b[D\x1b[Dea\x1b[3~\r")  # left thrice, two letters, delete
    shared.wait_for("heard 'heald'.")


def test_ctrl_c_and_keys_leave_no_trace_in_an_answer(shared: Terminal) -> None:
    shared.press("slow\r")
    shared.wait_for("slow3")
    shared.press("typed\x1b[C\x1b[C ahead")
    shared.wait_for("slow20")
    shared.press(CTRL_C)
    answer = shared.wait_for("(stopped)")
    assert "typed" not in answer
    assert "^" not in "".join(shared.lines())


def test_ctrl_c_at_the_prompt_drops_the_line(shared: Terminal) -> None:
    shared.press("nonsense")
    shared.wait_for_line("> nonsense")
    shared.press(CTRL_C)
    shared.wait_for_line(">")
    shared.press("sense\r")
    shared.wait_for("heard 'sense'.")
    assert "^C" not in "".join(shared.lines())


def test_text_typed_during_an_answer_is_the_next_message(terminal: Terminal) -> None:
    terminal.press("slow\r")
    terminal.wait_for("slow3")
    terminal.press(f"nexx\x7ft{ALT_ENTER}one\r{CTRL_D}")
    terminal.wait_for("slow6")
    terminal.interrupt()
    terminal.wait_for("heard 'next\\none'.")
    assert terminal.leave() == 0


@pytest.mark.parametrize(("message", "text"), [("long", LONG), ("wide", WIDE)], ids=["long", "wide"])
def test_words_are_wrapped_at_the_terminals_width(tmp_path: Path, message: str, text: str) -> None:
    with begin(tmp_path, columns=31) as terminal:
        terminal.wait_for_line(">")
        terminal.press(f"{message}\r")
        terminal.wait_for(text[-3:])
        terminal.wait_for_line(">")
        lines = terminal.lines()
    shown = lines[lines.index(f"> {message}") + 1 : -1]
    assert len(shown) > 2
    if message == "long":
        assert [word for line in shown for word in line.split()] == text.split()
    else:
        assert "".join(shown).replace(" ", "") == text  # the emulator has an empty cell beside a wide character


def test_the_model_cannot_command_the_terminal(shared: Terminal) -> None:
    shared.press("hostile\r")
    shared.wait_for("end")
    assert "before␛]0;owned␇ ␛[2J�31mafter␡ ␈end" in shared.lines()
    assert shared.screen.title == ""
    shared.press(pasted("/x\x1b]0;pasted\x07") + "\r")
    shared.wait_for("There is no command")
    shared.wait_for_line(">")
    assert "\x1b]0;" not in shared.raw


def test_a_pipe_gets_the_models_bytes() -> None:
    done = subprocess.run(SCRIPTED, input=b"hostile\nlong\n", capture_output=True, check=True, timeout=300)
    assert done.stdout == f"{HOSTILE}\n{LONG}\n".encode()


@pytest.mark.parametrize("keys", ["", "slow\r"], ids=["at the prompt", "in an answer"])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(terminal: Terminal, keys: str) -> None:
    terminal.press(keys)
    if keys:
        terminal.wait_for("slow3")
    assert not terminal.modes()[3] & termios.ECHO
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.leave() == -signal.SIGTERM
    assert terminal.modes()[3] & termios.ECHO
    assert terminal.modes()[3] & termios.ICANON


def test_after_a_pause_keys_are_still_not_echoed(shared: Terminal) -> None:
    """Ctrl-Z and fg: the shell that had the terminal in between leaves the echo on."""
    shared.press("slow\r")
    shared.wait_for("slow3")
    shared.process.send_signal(signal.SIGSTOP)
    shared.set_echo()
    shared.process.send_signal(signal.SIGCONT)
    shared.wait_for("slow20")
    assert not shared.modes()[3] & termios.ECHO
    shared.press(CTRL_C)
    shared.wait_for("(stopped)")


def test_an_exception_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.press("fail\r")
    terminal.wait_for("RuntimeError: as asked")
    assert terminal.leave() == 1
    assert terminal.modes()[3] & termios.ECHO
    assert terminal.modes()[3] & termios.ICANON


def test_the_history_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "state" / "chat_history"
    history = open_history(path)
    history.store_string("x" * (ENTRY_BYTES + 1))
    assert path.read_bytes() == b""
    for number in range(HISTORY_BYTES // 1000 + 1):
        history.store_string(f"{number} " + "x" * 1000)
    path.chmod(0o644)
    kept = list(open_history(path).load_history_strings())
    assert path.stat().st_size <= HISTORY_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept[0].split()[0] == str(HISTORY_BYTES // 1000)
    assert {len(text.split()[1]) for text in kept} == {1000}


@pytest.mark.parametrize("obstacle", ["file", "folder", "fifo"])
def test_without_a_place_for_it_the_history_is_in_memory(tmp_path: Path, obstacle: str) -> None:
    path = tmp_path / "surefoot" / "chat_history"
    if obstacle == "file":
        path.parent.write_text("")
    else:
        path.parent.mkdir()
        path.mkdir() if obstacle == "folder" else os.mkfifo(path)
    history = open_history(path)
    history.append_string("kept")
    assert history.get_strings() == ["kept"]


def test_the_line_editor_is_not_loaded_elsewhere() -> None:
    check = "import sys, surefoot.cli.chat; sys.exit('prompt_toolkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=300).returncode == 0
