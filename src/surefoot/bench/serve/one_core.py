"""Measures servers that are limited to one core: does the server choose the best number of threads?"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from surefoot.bench.harness.http_load import Endpoint, streams_s
from surefoot.bench.harness.one_core import one_core
from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.bench.harness.timing import Case, Label
from surefoot.bench.harness.workloads import Task

BY_ITSELF = 0  # label of the server that chooses its number of threads
HAND_SET = (1, 2)  # threads of the other servers


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
