"""Measures how long a user waits for a first text while another user keeps many requests in flight."""

import asyncio
import http.client
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvloop

from surefoot.bench.harness.figures import percentile
from surefoot.bench.harness.http_load import Endpoint, Outcome, ask
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task

POLL_S = 0.01
SUM, COUNT = "surefoot:step_seconds_sum", "surefoot:step_seconds_count"


@dataclass(frozen=True)
class Fairness:
    """Times to first text of a single user's requests, in seconds, in order."""

    idle_s: tuple[float, ...]  # on an idle server
    busy_s: tuple[float, ...]  # while the other user keeps the server busy
    step_s: float  # mean duration of a step on the busy server

    @property
    def ratio(self) -> float:
        """The 95th percentile on the busy server, minus one step, over the 95th percentile on the idle server."""
        idle, busy = (percentile(waits, 0.95) for waits in (self.idle_s, self.busy_s))
        assert idle is not None
        assert busy is not None
        return (busy - self.step_s) / idle


@dataclass(frozen=True)
class Others:
    """The user that keeps `num_streams` requests in flight."""

    endpoint: Endpoint
    tasks: Iterator[Task]
    num_streams: int
    num_begun: int = 0  # streams that must have a text before the single user starts; 0: start during their prefill


def measure_fairness(single: Endpoint, idle: Sequence[Task], busy: Sequence[Task], others: Others) -> Fairness:
    """Sends a single user's tasks one at a time: `idle` to the idle server, `busy` while the other user has requests in
    flight. The first idle task only warms up. Raises EngineError if any request fails."""

    async def drive() -> Fairness:
        _, *idle_s = await _waits(single, idle)
        async with _kept_busy(others):
            before = _steps(single)
            busy_s = await _waits(single, busy)
            seconds, count = (after - begin for after, begin in zip(_steps(single), before, strict=True))
        return Fairness(tuple(idle_s), tuple(busy_s), seconds / count)

    return uvloop.run(drive())


async def _waits(endpoint: Endpoint, tasks: Sequence[Task]) -> list[float]:
    """The time to first text of each task, sent one at a time."""
    return [_checked(await ask(endpoint, task, time.perf_counter())).ttft for task in tasks]


def _checked(outcome: Outcome) -> Outcome:
    if outcome.error is not None:
        raise EngineError(f"a request of one user beside another failed: {outcome.error}")
    return outcome


@asynccontextmanager
async def _kept_busy(others: Others) -> AsyncIterator[None]:
    """Keeps the other user's requests in flight during the block."""
    seen: list[list[float]] = [[] for _ in range(others.num_streams)]

    async def stream(times: list[float]) -> None:
        for task in others.tasks:
            _checked(await ask(others.endpoint, task, time.perf_counter(), seen=times))

    running = [asyncio.create_task(stream(times)) for times in seen]

    def check() -> None:
        for stream_task in running:
            if stream_task.done():
                stream_task.result()
                raise EngineError("the other user had no more tasks")

    try:
        await asyncio.sleep(POLL_S)
        while sum(map(bool, seen)) < others.num_begun:
            check()
            await asyncio.sleep(POLL_S)
        yield
        check()
    finally:
        for stream_task in running:
            stream_task.cancel()
        await asyncio.wait(running)


def _steps(endpoint: Endpoint) -> tuple[float, float]:
    """The total duration and number of steps so far, from the server's metrics."""
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)
    try:
        connection.request("GET", "/metrics", headers=endpoint.headers)
        response = connection.getresponse()
        lines = response.read().decode().splitlines()
        if response.status != 200:
            raise EngineError(f"/metrics answered {response.status}: the key must be an admin's")
    finally:
        connection.close()

    def value(name: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[{{ ]", line))

    return value(SUM), value(COUNT)
