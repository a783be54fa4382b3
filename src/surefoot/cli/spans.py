"""How long each part of a start took, for the line that a server prints when it is ready."""

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from surefoot.cli.progress import Report


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
