"""The load generator against a real server."""

import asyncio
import statistics
from itertools import pairwise

import pytest

from surefoot.bench.harness.http_load import Endpoint, Outcome, ask, closed_loop, open_loop, poisson
from surefoot.bench.harness.server_process import RunningServer, free_port
from surefoot.bench.harness.workloads import Task, mixed

VOCAB = 512


def test_arrivals_are_random_and_the_same_again() -> None:
    times = poisson(50, 100, seed=1)
    assert times == poisson(50, 100, seed=1) != poisson(50, 100, seed=2)
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < 100
    assert abs(len(times) - 5000) < 300  # four times the deviation
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1)


def test_streams_bring_every_token(server: RunningServer) -> None:
    tasks = mixed(12, VOCAB, 1, 0.2)
    run = closed_loop(server.endpoint(), tasks, num_streams=4)
    assert run.errors == []
    assert sorted(one.num_tokens for one in run.done) == sorted(task.num_new for task in tasks)
    for one in run.done:
        assert 0 <= one.sent < one.times[0] <= one.times[-1] <= one.end <= run.seconds
        assert 0 < len(one.times) <= one.num_tokens  # a token may be half a character
    # No more than four at once.
    starts = [(one.sent, 1) for one in run.done] + [(one.end, -1) for one in run.done]
    at_once = most = 0
    for _, change in sorted(starts):
        at_once += change
        most = max(most, at_once)
    assert most == 4


def test_answers_as_a_whole(server: RunningServer) -> None:
    tasks = mixed(3, VOCAB, 2, 0.2)
    run = closed_loop(server.endpoint(), tasks, num_streams=3, streamed=False)
    assert run.errors == []
    assert {one.num_tokens for one in run.done} == {task.num_new for task in tasks}


@pytest.mark.nightly
def test_requests_come_at_their_times(server: RunningServer) -> None:
    """However long the ones before take."""
    arrivals = [0.0, 0.02, 0.3]
    run = open_loop(server.endpoint(), [Task((300, 301, 302), 400)] * 3, arrivals)
    assert run.errors == []
    for one, at in zip(run.outcomes, arrivals, strict=True):
        assert at - 0.002 <= one.sent < at + 2  # the loop counts in milliseconds
    assert run.outcomes[1].sent < run.outcomes[0].end


def test_what_is_refused_is_told(server: RunningServer) -> None:
    too_long = Task((300,) * 4000, 2)
    run = open_loop(server.endpoint(), [too_long, Task((300,), 2)], [0.0, 0.0])
    assert [one.error is None for one in run.outcomes] == [False, True]
    assert run.errors[0].startswith("status 400")
    assert "context" in run.errors[0]
    nobody = open_loop(Endpoint("127.0.0.1", free_port(), "bench"), [Task((300,), 2)], [0.0])
    assert nobody.errors[0].startswith("no connection")


def test_a_stream_that_breaks_off_is_no_success() -> None:
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
