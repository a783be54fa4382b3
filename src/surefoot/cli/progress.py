"""Progress of long work, on stderr: a bar at a terminal, elsewhere a line every few seconds. And how long each part of
a start took."""

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

Say = Callable[[str, int, int], None]  # name of the task, steps done, steps in total
Report = Callable[[int, int], None]  # steps done and in total, of one task

PATIENCE_S = 0.5  # a shorter task shows no bar
LINE_S = 5.0


@contextmanager
def progress() -> Iterator[Say]:
    shown: Display = Bars() if sys.stderr.isatty() else Lines(_to_stderr)
    try:
        yield shown.say
    finally:
        shown.close()


@contextmanager
def showing(task: str) -> Iterator[Report]:
    """Progress of one task."""
    with progress() as say:
        yield lambda done, total: say(task, done, total)


def loading(name: str) -> AbstractContextManager[Report]:
    """Progress of loading a model."""
    return showing(f"loading {name}")


class Display(Protocol):
    def say(self, what: str, done: int, total: int) -> None: ...
    def close(self) -> None: ...


class Lines:
    """For logs. A task's first seconds are silent, so that a short task writes no line."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._began = self._last = clock()
        self._what = ""

    def say(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        if what != self._what:
            self._what, self._began, self._last = what, now, now
        if now - self._last >= LINE_S:
            self._last = now
            self._write(f"{what}: {done / max(total, 1):.0%} after {now - self._began:.0f} s")

    def close(self) -> None:
        """There is nothing to clean up."""


class Bars:
    """A bar for each task, removed when the task is done. rich is imported with the first bar, since importing it takes
    longer than loading a small model."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def say(self, what: str, done: int, total: int) -> None:
        if self._bars is None and self._clock() - self._began < PATIENCE_S:
            return
        if self._bars is None:
            self._bars = _rich_bars()
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)
        if done >= total:
            self._bars.remove_task(self._tasks.pop(what))
        if not self._tasks:
            self.close()

    def close(self) -> None:
        """Other output may follow. The next task waits before it shows a bar, as the first did."""
        if self._bars is not None:
            self._bars.stop()
        self._bars, self._began = None, self._clock()


def _rich_bars() -> Any:
    rich: Any = import_module("rich.progress")
    console = import_module("rich.console").Console(stderr=True)
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn())
    bars = rich.Progress(*columns, rich.TimeRemainingColumn(), console=console, transient=True)
    bars.start()
    return bars


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Spans:
    """Parts of a start, one after the other, from the beginning of the process."""

    def __init__(self, age_s: Callable[[], float]) -> None:
        """age_s: seconds since the process began."""
        self._age_s = age_s
        self._parts: list[tuple[str, float]] = []
        self._last = 0.0

    def end(self, part: str) -> None:
        """Ends a part, which began where the previous part ended."""
        now = self._age_s()
        self._parts.append((part, now - self._last))
        self._last = now

    def ending(self, part: str, report: Report) -> Report:
        """A report that also ends the part when all is done."""

        def report_and_end(done: int, total: int) -> None:
            report(done, total)
            if done >= total and part not in dict(self._parts):
                self.end(part)

        return report_and_end

    def line(self) -> str:
        parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in self._parts)
        return f"started  in {self._last:.2f} s ({time.process_time():.2f} s of processor time): {parts}"


def process_age_s() -> float:
    """Seconds since the process began, imports of the interpreter included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def lacks_bytecode(module: str = "typer") -> bool:
    """Whether Python compiles the module (and so others) at every start."""
    spec = importlib.util.find_spec(module)
    return sys.dont_write_bytecode and spec is not None and not os.path.exists(spec.cached or "")
