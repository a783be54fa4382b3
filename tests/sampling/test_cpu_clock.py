"""CPU clocks count work, also in threads that a library starts, and no waiting."""

import threading
import time
from pathlib import Path

import pytest

from surefoot.sampling import cpu_clock
from surefoot.sampling.cpu_clock import measured


class Helper:
    """Stands for a library's thread pool: one thread that works when told."""

    def __init__(self) -> None:
        self.told, self.done = threading.Event(), threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.told.wait(60)
        work(0.05)
        self.done.set()
        threading.Event().wait(60)


def work(cpu_seconds: float) -> None:
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        pass


def test_counts_the_work_of_the_started_thread() -> None:
    helper, seconds = measured(Helper)
    began = seconds()
    helper.told.set()
    assert helper.done.wait(60)
    assert seconds() - began >= 0.05


def test_counts_own_work_and_no_waiting() -> None:
    _, seconds = measured(lambda: None)
    began = seconds()
    work(0.02)
    assert seconds() - began >= 0.02
    began = seconds()
    time.sleep(0.3)
    assert seconds() - began < 0.3


def test_does_not_count_others() -> None:
    """Of threads that were there before."""
    helper = Helper()
    _, seconds = measured(lambda: None)
    began = seconds()
    helper.told.set()
    assert helper.done.wait(60)
    assert seconds() - began < 0.05


def test_the_thread_keeps_its_name() -> None:
    name = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
    before = name.read_text()
    measured(lambda: None)
    assert name.read_text() == before


def test_wall_time_where_threads_have_no_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu_clock, "TASKS", tmp_path)
    made, seconds = measured(lambda: "made")
    assert made == "made"
    assert seconds is time.monotonic
