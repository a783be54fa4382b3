"""Progress of long work: a bar at a terminal, a line every few seconds otherwise, nothing for quick work."""

import os
import pty
import subprocess
import sys

import pytest

from surefoot import LLM
from surefoot.cli.progress import LINE_S, PATIENCE_S, Bars, Lines
from tests.stories import stories_gguf


def test_a_line_every_few_seconds() -> None:
    now, lines = 0.0, list[str]()
    shown = Lines(lines.append, lambda: now)
    for step in range(101):
        now = step * LINE_S / 10
        shown.say("loading model.gguf", step, 100)
    assert len(lines) == 10
    assert lines[0] == f"loading model.gguf: 10% after {LINE_S:.0f} s"
    now += LINE_S
    shown.say("another", 0, 0)
    assert len(lines) == 10, "another task begins anew, and its first seconds are silent"
    now += LINE_S
    shown.say("another", 0, 0)
    assert lines[-1] == f"another: 0% after {LINE_S:.0f} s"


def test_quick_work_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    shown = Bars(lambda: now)
    for done in range(3):
        now += PATIENCE_S / 4
        shown.say("loading", done, 2)
    shown.close()
    assert capsys.readouterr().err == ""


def test_a_bar_at_a_terminal() -> None:
    code = "import time; from surefoot.cli.progress import loading\n"
    code += "with loading('model.gguf') as report:\n for n in range(5): report(n, 4); time.sleep(0.3)"
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=theirs, env={**os.environ, "TERM": "xterm"}, check=True)
    os.close(theirs)
    assert b"loading model.gguf" in os.read(ours, 1 << 16)
    os.close(ours)


def test_quick_loads_leave_no_line() -> None:
    lines = list[str]()
    shown = Lines(lines.append, lambda: 0.0)  # a load that takes no time, however busy the machine is
    LLM(stories_gguf(), max_context=64, report=lambda done, total: shown.say("loading", done, total))
    assert lines == []


def test_loading_reports_up_to_the_whole() -> None:
    seen: list[tuple[int, int]] = []
    LLM(stories_gguf(), max_context=64, report=lambda done, total: seen.append((done, total)))
    shares = [done / total for done, total in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(seen) > 10
