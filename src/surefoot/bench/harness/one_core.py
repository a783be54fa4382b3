"""Limits a process to one core: by the quota of a group of processes, or else by affinity."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from surefoot.bench.harness.server_process import Launch
from surefoot.bench.harness.timing import EngineError

GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # version 1, version 2
PERIOD_US = 100_000
ENTER = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'


@contextmanager
def one_core(launch: Launch, name: str) -> Iterator[tuple[Launch, str]]:
    """The launch limited to one core, and the mechanism: "quota" (of a cgroup) or else "affinity"."""
    with ExitStack() as stack:
        if group := _first_group(stack, name):
            yield replace(launch, command=("sh", "-c", ENTER, "sh", str(group), *launch.command)), "quota"
        elif taskset := shutil.which("taskset"):
            core = min(os.sched_getaffinity(0))
            yield replace(launch, command=(taskset, "-c", str(core), *launch.command)), "affinity"
        else:
            raise EngineError("no group of processes can be made here, and there is no taskset")


def _first_group(stack: ExitStack, name: str) -> Path | None:
    for top in GROUPS:
        with suppress(OSError):
            return stack.enter_context(_group(top, name))
    return None


@contextmanager
def _group(top: Path, name: str) -> Iterator[Path]:
    """A cgroup with a quota of one core. Raises OSError if this process may not create one."""
    group = top / f"surefoot-bench-{os.getpid()}-{name}"
    group.mkdir()
    try:
        if not (group / "cgroup.procs").exists():
            raise OSError(f"{top} holds no groups of processes")
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{PERIOD_US} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(PERIOD_US))
        yield group
    finally:
        group.rmdir()
