"""Measures the CPU time of a thread, with the threads that a library starts for it.

Wall time counts the machine's other load: a busy machine would end an answer that an idle one completes.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")
Clock = Callable[[], float]  # seconds since some moment

TASKS = Path("/proc/self/task")
# In Linux's numbers of CPU clocks, the inverted id of the thread stands above these bits (clock_getcpuclockid(3)).
OF_THREAD = 0b110


def measured(make: Callable[[], Made]) -> tuple[Made, Clock]:
    """What `make` returns, and a clock of the CPU time of this thread and of the threads that `make` starts.

    Linux names a new thread as the thread that started it: under a unique name, the new ones can be found. Where that
    is not possible, the clock is wall time.
    """
    own = threading.get_native_id()
    name = TASKS / str(own) / "comm"
    try:
        before = name.read_text().strip()
        name.write_text(f"cpu-{own}")
    except OSError:
        return make(), time.monotonic
    try:
        made = make()
        threads = _threads_named(f"cpu-{own}")
    finally:
        name.write_text(before)
    return made, lambda: sum(map(_thread_cpu_seconds, threads))


def _thread_cpu_seconds(thread: int) -> float:
    return time.clock_gettime(~thread << 3 | OF_THREAD)


def _threads_named(name: str) -> list[int]:
    return [int(thread) for thread in os.listdir(TASKS) if _name(thread) == name]


def _name(thread: str) -> str:
    try:
        return (TASKS / thread / "comm").read_text().strip()
    except OSError:  # it has ended
        return ""
