"""A load generator for OpenAI-compatible servers: random arrivals, or a fixed number of concurrent streams.

The client shares the machine with the server that it measures, so it does little: sockets, an HTTP parser in C, and one
regular expression per event.
"""

import asyncio
import json
import random
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, pairwise, takewhile
from typing import Any, cast

import httptools
import uvloop

from surefoot.bench.harness.timing import EngineError
from surefoot.bench.harness.workloads import Task

_TEXT = re.compile(rb'"text":\s*"[^"]')  # a text that is not empty
_DATA = b"data: "
NUM_LAST = 4  # last events that are kept; one of them holds the usage
MAX_ERROR = 200  # characters of an error message that are kept


@dataclass(frozen=True)
class Endpoint:
    """A server's address, and the user that sends requests to it."""

    host: str
    port: int
    model: str
    key: str | None = None  # the user's API key

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True)
class Outcome:
    """One request as measured by the client. Times are in seconds since the run began."""

    sent: float
    times: tuple[float, ...]  # of arrival, one for each text
    end: float
    num_tokens: int  # as counted by the server
    error: str | None = None  # such as a status, or fewer tokens than requested; the request then does not count

    @property
    def ttft(self) -> float:
        """Seconds until the first text."""
        return (self.times[0] if self.times else self.end) - self.sent

    @property
    def gaps(self) -> list[float]:
        """Seconds between texts."""
        return [after - before for before, after in pairwise(self.times)]


@dataclass(frozen=True)
class LoadResult:
    """The outcomes of all requests of a load."""

    outcomes: list[Outcome]
    seconds: float  # from the first request to the end of the last

    @property
    def done(self) -> list[Outcome]:
        """The requests without errors."""
        return [outcome for outcome in self.outcomes if outcome.error is None]

    @property
    def errors(self) -> list[str]:
        return [outcome.error for outcome in self.outcomes if outcome.error is not None]

    @property
    def tokens_per_second(self) -> float:
        return sum(outcome.num_tokens for outcome in self.done) / self.seconds


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Random arrival times: on average `rate` per second, independent of each other."""
    rng = random.Random(seed)
    gaps = (rng.expovariate(rate) for _ in count())
    return list(takewhile(lambda at: at < seconds, accumulate(gaps)))


def open_loop(
    endpoint: Endpoint, tasks: Sequence[Task], arrivals: Sequence[float], most_s: float | None = None
) -> LoadResult:
    """Sends each task at its arrival time, whatever the number of requests in flight. Requests that have not ended
    after `most_s` are given up."""

    async def drive(begin: float) -> list[Outcome]:
        async def send(task: Task, at: float) -> Outcome:
            await asyncio.sleep(max(0.0, begin + at - time.perf_counter()))
            try:
                async with asyncio.timeout(None if most_s is None else begin + most_s - time.perf_counter()):
                    return await ask(endpoint, task, begin)
            except TimeoutError:
                return Outcome(at, (), time.perf_counter() - begin, 0, "given up")

        return await asyncio.gather(*(send(task, at) for task, at in zip(tasks, arrivals, strict=True)))

    return _run(drive)


def closed_loop(endpoint: Endpoint, tasks: Sequence[Task], num_streams: int, streamed: bool = True) -> LoadResult:
    """Keeps `num_streams` requests in flight until all tasks are done."""

    async def drive(begin: float) -> list[Outcome]:
        waiting = deque(tasks)

        async def stream() -> list[Outcome]:
            outcomes = []
            while waiting:
                outcomes.append(await ask(endpoint, waiting.popleft(), begin, streamed))
            return outcomes

        return [
            outcome
            for outcomes in await asyncio.gather(*(stream() for _ in range(num_streams)))
            for outcome in outcomes
        ]

    return _run(drive)


def streams_s(endpoint: Endpoint, tasks: Sequence[Task], streamed: bool = True) -> float:
    """Seconds for all tasks at once. Raises EngineError if any request fails."""
    run = closed_loop(endpoint, tasks, len(tasks), streamed)
    if run.errors:
        raise EngineError(f"{len(run.errors)} of {len(tasks)} requests failed: {run.errors[0]}")
    return run.seconds


def _run(drive: Callable[[float], Coroutine[Any, Any, list[Outcome]]]) -> LoadResult:
    begin = time.perf_counter()
    outcomes = uvloop.run(drive(begin))
    return LoadResult(outcomes, max((outcome.end for outcome in outcomes), default=0.0))


async def ask(
    endpoint: Endpoint, task: Task, begin: float, streamed: bool = True, seen: list[float] | None = None
) -> Outcome:
    """Sends one request and reads its answer. seen: receives the arrival time of each text, by `perf_counter`."""
    answer = _Answer(_request(endpoint, task, streamed), [] if seen is None else seen)
    sent = time.perf_counter() - begin
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: answer, endpoint.host, endpoint.port)
    except OSError as failure:
        return Outcome(sent, (), time.perf_counter() - begin, 0, f"no connection: {failure}")
    try:
        await answer.done
    finally:
        transport.close()
    times = tuple(at - begin for at in answer.times)
    num_tokens, error = _check(answer, task)
    return Outcome(sent, times, time.perf_counter() - begin, num_tokens, error)


def _request(endpoint: Endpoint, task: Task, streamed: bool) -> bytes:
    body: dict[str, Any] = {
        "model": endpoint.model, "prompt": task.prompt, "max_tokens": task.num_new, "temperature": 0,
        "ignore_eos": task.is_forced, "stream": streamed,
    }  # fmt: skip
    if streamed:
        body["stream_options"] = {"include_usage": True}
    data = json.dumps(body).encode()
    head = [
        "POST /v1/completions HTTP/1.1", f"Host: {endpoint.host}:{endpoint.port}", "Content-Type: application/json",
        f"Content-Length: {len(data)}", "Connection: close", *map(": ".join, endpoint.headers.items()),
    ]  # fmt: skip
    return "\r\n".join([*head, "", ""]).encode() + data


class _Answer(asyncio.Protocol):
    """Sends a request and reads its answer event by event. Records the time of each event with text."""

    def __init__(self, request: bytes, times: list[float]) -> None:
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._now = 0.0
        self.times = times
        self.last: deque[bytes] = deque(maxlen=NUM_LAST)
        self.status = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._finish()

    def on_body(self, body: bytes) -> None:
        *events, self._rest = (self._rest + body).split(b"\n\n")
        for event in events:
            self.last.append(event)
            if _TEXT.search(event):
                self.times.append(self._now)

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.last.append(self._rest)
        self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _check(answer: _Answer, task: Task) -> tuple[int, str | None]:
    """The number of tokens as counted by the server, and an error message if the answer is wrong."""
    if answer.status != 200:
        body = b" ".join(answer.last).decode(errors="replace")[:MAX_ERROR]
        return 0, f"status {answer.status}: {body}" if answer.status else "the connection was lost"
    for event in reversed(answer.last):
        text = event.partition(_DATA)[2] or event
        if text.startswith(b"{") and (usage := json.loads(text).get("usage")):
            num_tokens = int(usage["completion_tokens"])
            is_right = num_tokens == task.num_new if task.is_forced else 0 < num_tokens <= task.num_new
            return num_tokens, None if is_right else f"{num_tokens} tokens came, {task.num_new} were asked for"
    return 0, "the stream ended without its usage"
