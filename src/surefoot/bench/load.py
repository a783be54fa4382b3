"""Load on an OpenAI-compatible server: requests that arrive at random, or a fixed number of streams at once.

The client shares the machine with the server that it measures, so it does little: sockets, an HTTP parser in C, and a
look at each event for its text.
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

from surefoot.bench.workloads import Task

_TEXT = re.compile(rb'"text":\s*"[^"]')  # that is not empty
_DATA = b"data: "
NUM_LAST = 4  # events that may hold the usage
MOST_ERROR = 200  # characters of a refusal that are kept


@dataclass(frozen=True)
class Endpoint:
    """Where requests go, and as whom."""

    host: str
    port: int
    model: str
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True)
class Outcome:
    """One request as its client saw it: seconds since the run began.

    times: when text came. error: why it does not count, such as a status or fewer tokens than were asked for.
    """

    sent: float
    times: tuple[float, ...]
    end: float
    num_tokens: int
    error: str | None = None

    @property
    def ttft(self) -> float:
        """Until the first text."""
        return (self.times[0] if self.times else self.end) - self.sent

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.times)]


@dataclass(frozen=True)
class Run:
    """What came of a load. seconds: from the first request to the last end."""

    outcomes: list[Outcome]
    seconds: float

    @property
    def done(self) -> list[Outcome]:
        return [one for one in self.outcomes if one.error is None]

    @property
    def errors(self) -> list[str]:
        return [one.error for one in self.outcomes if one.error is not None]

    @property
    def tokens_per_second(self) -> float:
        return sum(one.num_tokens for one in self.done) / self.seconds


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Times of arrivals at so many a second on average, each independent of the others."""
    rng = random.Random(seed)
    gaps = (rng.expovariate(rate) for _ in count())
    return list(takewhile(lambda at: at < seconds, accumulate(gaps)))


def open_loop(endpoint: Endpoint, tasks: Sequence[Task], arrivals: Sequence[float]) -> Run:
    """Each task at its time, however many are still under way."""

    async def drive(begin: float) -> list[Outcome]:
        async def one(task: Task, at: float) -> Outcome:
            await asyncio.sleep(max(0.0, begin + at - time.perf_counter()))
            return await ask(endpoint, task, begin)

        return await asyncio.gather(*(one(task, at) for task, at in zip(tasks, arrivals, strict=True)))

    return _run(drive)


def closed_loop(endpoint: Endpoint, tasks: Sequence[Task], num_streams: int, streamed: bool = True) -> Run:
    """So many at once until all are done: the next starts when one ends."""

    async def drive(begin: float) -> list[Outcome]:
        waiting = deque(tasks)

        async def stream() -> list[Outcome]:
            found = []
            while waiting:
                found.append(await ask(endpoint, waiting.popleft(), begin, streamed))
            return found

        return [one for found in await asyncio.gather(*(stream() for _ in range(num_streams))) for one in found]

    return _run(drive)


def _run(drive: Callable[[float], Coroutine[Any, Any, list[Outcome]]]) -> Run:
    begin = time.perf_counter()
    outcomes = uvloop.run(drive(begin))
    return Run(outcomes, max((one.end for one in outcomes), default=0.0))


async def ask(
    endpoint: Endpoint, task: Task, begin: float, streamed: bool = True, seen: list[float] | None = None
) -> Outcome:
    """One request to its end. seen: takes the times of texts as they come, on the clock itself."""
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
        "ignore_eos": True, "stream": streamed,
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
    """Sends a request and reads what comes: as events, with the times of those that bring text."""

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
    """Tokens that came, by the server's own count, and what is wrong."""
    if answer.status != 200:
        said = b" ".join(answer.last).decode(errors="replace")[:MOST_ERROR]
        return 0, f"status {answer.status}: {said}" if answer.status else "the connection was lost"
    for event in reversed(answer.last):
        text = event.partition(_DATA)[2] or event
        if text.startswith(b"{") and (usage := json.loads(text).get("usage")):
            came = int(usage["completion_tokens"])
            return came, None if came == task.num_new else f"{came} tokens came, {task.num_new} were asked for"
    return 0, "the stream ended without its usage"
