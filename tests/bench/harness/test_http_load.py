"""The load generator against a real server."""

import asyncio
import statistics
from itertools import pairwise

import pytest

from surefoot.bench.harness.http_load import Endpoint, Outcome, ask, closed_loop, open_loop, poisson
from surefoot.bench.harness.server_process import RunningServer, free_port
from surefoot.bench.harness.workloads import Task, mixed

VOCAB = 512


def test_arrivals_are_random_and_reproducible() -> None:
    times = poisson(50, 100, seed=1)
    assert times == poisson(50, 100, seed=1) != poisson(50, 100, seed=2)
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < 100
    assert abs(len(times) - 5000) < 300  # four standard deviations
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1)


def test_streams_return_every_token(server: RunningServer) -> None:
    tasks = mixed(12, VOCAB, 1, 0.2)
    run = closed_loop(server.endpoint(), tasks, num_streams=4)
    assert run.errors == []
    assert sorted(outcome.num_tokens for outcome in run.done) == sorted(task.num_new for task in tasks)
    for outcome in run.done:
        assert 0 <= outcome.sent < outcome.times[0] <= outcome.times[-1] <= outcome.end <= run.seconds
        assert 0 < len(outcome.times) <= outcome.num_tokens  # a token may be half a character
    changes = [(outcome.sent, 1) for outcome in run.done] + [(outcome.end, -1) for outcome in run.done]
    at_once = max_at_once = 0
    for _, change in sorted(changes):
        at_once += change
        max_at_once = max(max_at_once, at_once)
    assert max_at_once == 4


def test_answers_without_streaming(server: RunningServer) -> None:
    tasks = mixed(3, VOCAB, 2, 0.2)
    run = closed_loop(server.endpoint(), tasks, num_streams=3, streamed=False)
    assert run.errors == []
    assert {outcome.num_tokens for outcome in run.done} == {task.num_new for task in tasks}


@pytest.mark.nightly
def test_requests_are_sent_at_their_arrival_times(server: RunningServer) -> None:
    """Earlier requests do not delay later ones."""
    arrivals = [0.0, 0.02, 0.3]
    run = open_loop(server.endpoint(), [Task((300, 301, 302), 400)] * 3, arrivals)
    assert run.errors == []
    for outcome, at in zip(run.outcomes, arrivals, strict=True):
        assert at - 0.002 <= outcome.sent < at + 2  # the event loop counts in milliseconds
    assert run.outcomes[1].sent < run.outcomes[0].end


def test_errors_are_reported(server: RunningServer) -> None:
    too_long = Task((300,) * 4000, 2)
    run = open_loop(server.endpoint(), [too_long, Task((300,), 2)], [0.0, 0.0])
    assert [outcome.error is None for outcome in run.outcomes] == [False, True]
    assert run.errors[0].startswith("status 400")
    assert "context" in run.errors[0]
    run = open_loop(Endpoint("127.0.0.1", free_port(), "bench"), [Task((300,), 2)], [0.0])
    assert run.errors[0].startswith("no connection")


def test_an_interrupted_stream_is_an_error() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        event = b'data: {"choices": [{"text": "a"}]}\n\n'
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
        writer.close()

    async def both() -> Outcome:
        listening = await asyncio.start_server(break_off, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            return await ask(Endpoint("127.0.0.1", port, "bench"), Task((1,), 2), 0.0)

    outcome = asyncio.run(both())
    assert len(outcome.times) == 1
    assert outcome.error == "the connection was lost"
