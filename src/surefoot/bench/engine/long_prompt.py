"""A long prompt arrives at a server while other requests stream: for how long do their texts stop?"""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import uvloop

from surefoot.bench.harness.figures import percentile
from surefoot.bench.harness.http_load import Endpoint, Outcome, ask
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task

POLL_S = 0.01


def worst_over_usual(endpoint: Endpoint, streams: Sequence[Task], long: Task, num_quiet: int) -> float:
    """The 99th percentile of gaps between texts during the long prompt's prefill, over the median before it.

    streams: must be longer than the prefill takes; they are cancelled after it. num_quiet: texts of each stream before
    the long prompt is sent.
    """
    times, sent, end = uvloop.run(_drive(endpoint, streams, long, num_quiet))
    # Texts that arrive together count as one.
    gaps = [pair for one in times for pair in pairwise(sorted({*one}))]
    quiet = [after - before for before, after in gaps if after <= sent]
    busy = [after - before for before, after in gaps if after > sent and before < end]
    worst = percentile(busy, 0.99)
    if worst is None or not quiet:
        raise EngineError("no texts came beside the long prompt")
    return worst / median(quiet)


async def _drive(
    endpoint: Endpoint, streams: Sequence[Task], long: Task, num_quiet: int
) -> tuple[list[list[float]], float, float]:
    """The times of each stream's texts, when the long prompt was sent, and when it was answered."""
    times: list[list[float]] = [[] for _ in streams]
    pairs = zip(streams, times, strict=True)
    running = [asyncio.create_task(ask(endpoint, task, 0.0, seen=seen)) for task, seen in pairs]
    try:
        await _until(lambda: min(map(len, times)) >= num_quiet, running)
        sent = time.perf_counter()
        outcome = await ask(endpoint, long, 0.0)
        if outcome.error is not None:
            raise EngineError(f"the long prompt failed: {outcome.error}")
        end = time.perf_counter()
        await _until(lambda: min(seen[-1] for seen in times) > end, running)
    finally:
        for one in running:
            one.cancel()
        await asyncio.wait(running)
    return times, sent, end


async def _until(is_so: Callable[[], bool], running: Sequence["asyncio.Task[Outcome]"]) -> None:
    while not is_so():
        ended = [one.result() for one in running if one.done()]
        if ended:
            raise EngineError(f"a stream ended too early: {ended[0].error or 'it was too short'}")
        await asyncio.sleep(POLL_S)
