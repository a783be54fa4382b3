"""A cgroup with a memory limit, made by a test for the processes that it starts."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surefoot.machine.cgroups import group_folders
from surefoot.machine.files import read_int, read_text

LEAVE_S = 60.0  # for the last process to leave the group


class NoMemoryGroup(Exception):
    """This machine lets a test set no limit; the message says why."""


@dataclass(frozen=True)
class MemoryGroup:
    folder: Path

    def enter(self) -> None:
        """Move the calling process into the group: its memory, and that of its children, counts from now on."""
        (self.folder / "cgroup.procs").write_text("0")

    @property
    def limit_bytes(self) -> int | None:
        return self._read("memory.max", "memory.limit_in_bytes")

    @property
    def peak_bytes(self) -> int:
        """The most that the group has had, page cache included."""
        peak = self._read("memory.peak", "memory.max_usage_in_bytes")
        assert peak is not None
        return peak

    @property
    def num_killed(self) -> int:
        """Processes that the kernel ended because the group had reached its limit."""
        lines = read_text(self.folder / "memory.events") + "\n" + read_text(self.folder / "memory.oom_control")
        return next(int(line.split()[1]) for line in lines.splitlines() if line.startswith("oom_kill "))

    def _read(self, *names: str) -> int | None:
        """From the file of either version."""
        return next((value for name in names if (value := read_int(self.folder / name)) is not None), None)


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group below this process's own, so that what holds for tests holds for it too. Its processes have to end
    before the block does. Raises NoMemoryGroup."""
    parent = next(filter(_has_memory, group_folders("memory")), None)
    if parent is None:
        raise NoMemoryGroup("there is no memory controller: neither a cgroup v1 nor a v2 hierarchy has one")
    folder = parent / f"surefoot-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoMemoryGroup(f"no cgroup can be made below {parent}: {error}") from error
    try:
        _limit(folder, limit_bytes)
        yield MemoryGroup(folder)
    finally:
        _remove(folder)


def _has_memory(folder: Path) -> bool:
    return (folder / "memory.limit_in_bytes").exists() or "memory" in read_text(folder / "cgroup.controllers").split()


def _limit(folder: Path, limit_bytes: int) -> None:
    files = [folder / name for name in ("memory.max", "memory.limit_in_bytes") if (folder / name).exists()]
    if not files:
        raise NoMemoryGroup(
            f"{folder.parent} passes no memory controller on: in cgroup v2 a group with processes cannot, unless it is "
            "the root"
        )
    try:
        files[0].write_text(str(limit_bytes))
    except OSError as error:
        raise NoMemoryGroup(f"{files[0]} cannot be written: {error}") from error


def _remove(folder: Path) -> None:
    """A process that has ended leaves its group a moment later."""
    end = time.monotonic() + LEAVE_S
    while read_text(folder / "cgroup.procs"):
        assert time.monotonic() < end, f"processes are left in {folder}"
        time.sleep(0.01)
    folder.rmdir()
