"""Processes that are started again when they die, and replaced by others."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surefoot.fleet.process_keeper import ProcessKeeper
from tests.waiting import wait_for


def command(name: str, folder: Path) -> tuple[str, ...]:
    """Notes its start and its gentle end in a file, then waits."""
    program = (
        "import signal, sys, pathlib\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "def say(word):\n"
        "    with file.open('a') as out: out.write(word + ' ' + sys.argv[2] + '\\n')\n"
        "def leave(*_):\n"
        "    say('end'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "say('start')\n"
        "while True: signal.pause()\n"
    )
    return sys.executable, "-S", "-c", program, str(folder / "log"), name


@contextmanager
def keeping(words: tuple[str, ...]) -> Iterator[ProcessKeeper]:
    keeper = ProcessKeeper(words)
    try:
        yield keeper
    finally:
        keeper.stop()


def log(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []


def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    with keeping(command("a", tmp_path)) as keeper:
        wait_for(lambda: log(tmp_path) == ["start a"])
        pid = keeper.state().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: log(tmp_path) == ["start a", "start a"])
        state = keeper.state()
        assert state.num_restarts == 1
        assert state.pid not in (None, pid)
    assert log(tmp_path) == ["start a", "start a", "end a"]


def test_a_replacement_starts_after_the_gentle_end(tmp_path: Path) -> None:
    with keeping(command("a", tmp_path)) as keeper:
        wait_for(lambda: log(tmp_path) == ["start a"])
        keeper.replace(command("b", tmp_path))
        wait_for(lambda: log(tmp_path) == ["start a", "end a", "start b"])
        assert keeper.state().num_restarts == 0
        assert keeper.state().command == command("b", tmp_path)
    assert log(tmp_path)[-1] == "end b"


def test_what_was_stopped_stays_stopped(tmp_path: Path) -> None:
    keeper = ProcessKeeper(command("a", tmp_path))
    wait_for(lambda: log(tmp_path) == ["start a"])
    keeper.stop()
    state = keeper.state()
    assert state.pid is None
    assert log(tmp_path) == ["start a", "end a"]


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not there")
def test_a_process_ends_with_its_keeper(tmp_path: Path) -> None:
    program = "import sys, time\nfrom surefoot.fleet.process_keeper import ProcessKeeper\n"
    program += "ProcessKeeper(sys.argv[1:])\ntime.sleep(1000)"
    keeper = subprocess.Popen([sys.executable, "-c", program, *command("a", tmp_path)])
    wait_for(lambda: log(tmp_path) == ["start a"])
    keeper.kill()
    keeper.wait()
    wait_for(lambda: log(tmp_path) == ["start a", "end a"])
