"""Measures servers that are limited to one core: does the server choose the best number of threads?"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from surefoot.bench.harness.http_load import Endpoint, streams_s
from surefoot.bench.harness.server_process import Launch, free_port, own_launch, running
from surefoot.bench.harness.timing import Case, EngineError, Label
from surefoot.bench.harness.workloads import Task

GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # version 1, version 2
PERIOD_US = 100_000
REMOVE_S = 5.0
ENTER = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
BY_ITSELF = 0  # label of the server that chooses its number of threads
HAND_SET = (1, 2)  # threads of the other servers


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
        _remove(group)


def _remove(group: Path) -> None:
    """A process that has just ended may still be in the group for a moment."""
    end = time.monotonic() + REMOVE_S
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextmanager
def one_core_cases(
    model: str, make_tasks: Callable[[], Sequence[Task]], options: Sequence[str]
) -> Iterator[tuple[list[Case], str]]:
    """Cases that send the same load to servers with one core, and the mechanism of the limit. The first server chooses
    its number of threads, the others have a fixed number."""
    with ExitStack() as stack:
        cases = []
        for threads in (BY_ITSELF, *HAND_SET):
            port, extra = free_port(), ("--threads", str(threads)) if threads else ()
            launch = own_launch(model, port, *options, *extra)
            launch, mechanism = stack.enter_context(one_core(launch, str(threads)))
            endpoint = stack.enter_context(running(launch, port)).endpoint()
            labels: dict[str, Label] = {"threads": threads}
            run = partial(_fresh_streams_s, endpoint, make_tasks)
            cases.append(Case(f"one core/{threads or 'by itself'}", "one core", run, labels=labels))
        yield cases, mechanism


def _fresh_streams_s(endpoint: Endpoint, make_tasks: Callable[[], Sequence[Task]]) -> float:
    return streams_s(endpoint, make_tasks())
