"""Processor time of another process, as a bound."""

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from surefoot.machine import cpu_usage
from surefoot.machine.cpu_usage import CpuAllowance, cpu_seconds


def test_work_uses_it_up() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        began, allowance = cpu_seconds(busy.pid), CpuAllowance(busy.pid, 0.2)
        with suppress(TimeoutError):
            while True:
                time.sleep(allowance.wait_s())
        assert cpu_seconds(busy.pid) - began >= 0.2
        busy.kill()


def test_waiting_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until patience ends, which is of the wall."""
    now = 0.0
    monkeypatch.setattr(cpu_usage.time, "monotonic", lambda: now)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as idle:
        allowance = CpuAllowance(idle.pid, 1000.0)
        now = 29_999.0
        assert allowance.wait_s() == 1.0
        now = 30_000.0
        with pytest.raises(TimeoutError):
            allowance.wait_s()
        idle.kill()


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with pytest.raises(ProcessLookupError):
        cpu_seconds(gone.pid)
