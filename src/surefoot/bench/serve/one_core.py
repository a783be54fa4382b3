"""Servers limited to one core: does a server choose the best number of threads by itself?"""

import os
import shutil
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
ENTER = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
BY_ITSELF = 0  # label of a server that chooses its number of threads
HAND_SET = (1, 2)


@contextmanager
def one_core(launch: Launch, name: str) -> Iterator[tuple[Launch, str]]:
    """The launch limited to one core, and how: by a cgroup quota, or else by affinity."""
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


@contextmanager
def one_core_cases(
    model: str, make_tasks: Callable[[], Sequence[Task]], words: Sequence[str]
) -> Iterator[tuple[list[Case], str]]:
    """Cases that send the same streams to servers with one core: one chooses its threads, the others are told."""
    with ExitStack() as stack:
        cases = []
        for threads in (BY_ITSELF, *HAND_SET):
            port, extra = free_port(), ("--threads", str(threads)) if threads else ()
            launch = own_launch(model, port, *words, *extra)
            launch, way = stack.enter_context(one_core(launch, str(threads)))
            endpoint = stack.enter_context(running(launch, port)).endpoint()
            labels: dict[str, Label] = {"threads": threads}
            run = partial(_fresh_streams_s, endpoint, make_tasks)
            cases.append(Case(f"one core/{threads or 'by itself'}", "one core", run, labels=labels))
        yield cases, way


def _fresh_streams_s(endpoint: Endpoint, make_tasks: Callable[[], Sequence[Task]]) -> float:
    return streams_s(endpoint, make_tasks())
