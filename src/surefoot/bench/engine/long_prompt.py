"""Measures how long a server's streams stall while it prefills a long prompt."""

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

    streams: tasks that take longer than the prefill; they are cancelled after it. num_quiet: texts of each stream
    before the long prompt is sent.
    """
    return stall(*uvloop.run(_drive(endpoint, streams, long, num_quiet)))


def stall(times: Sequence[Sequence[float]], sent: float, end: float) -> float:
    """The 99th percentile of gaps that touch the long prompt's time, over the median of those before it.

    times: when the texts of each stream came. sent, end: when the long prompt was sent and answered.
    """
    # Texts that arrive at the same time count once.
    gaps = [pair for stream in times for pair in pairwise(sorted({*stream}))]
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
        for stream in running:
            stream.cancel()
        await asyncio.wait(running)
    return times, sent, end


async def _until(condition: Callable[[], bool], running: Sequence["asyncio.Task[Outcome]"]) -> None:
    """Waits for the condition. Raises EngineError if a stream ends first."""
    while not condition():
        ended = [stream.result() for stream in running if stream.done()]
        if ended:
            raise EngineError(f"a stream ended too early: {ended[0].error or 'it was too short'}")
        await asyncio.sleep(POLL_S)
