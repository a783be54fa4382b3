"""The load generator against a real server, and what is made of its outcomes."""

import asyncio
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from surefoot.bench.fairness import Others, measure_fairness
from surefoot.bench.load import Endpoint, Outcome, Run, ask, closed_loop, open_loop, poisson
from surefoot.bench.long_prompt import worst_over_usual
from surefoot.bench.one_core import one_core
from surefoot.bench.outcomes import percentile, point
from surefoot.bench.plot import line_plot
from surefoot.bench.server_process import Launch, Running, free_port, own_launch, running
from surefoot.bench.timing import EngineError
from surefoot.bench.workloads import Task, mixed
from tests.stories import stories_gguf

VOCAB = 512


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    port = free_port()
    with running(own_launch(stories_gguf(), port, "--max-running", "8", "--max-queue", "24"), port) as started:
        yield started


def test_arrivals_are_random_and_the_same_again() -> None:
    times = poisson(50, 100, seed=1)
    assert times == poisson(50, 100, seed=1) != poisson(50, 100, seed=2)
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < 100
    assert abs(len(times) - 5000) < 300  # four times the deviation
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1)


def test_streams_bring_every_token(server: Running) -> None:
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


def test_answers_as_a_whole(server: Running) -> None:
    tasks = mixed(3, VOCAB, 2, 0.2)
    run = closed_loop(server.endpoint(), tasks, num_streams=3, streamed=False)
    assert run.errors == []
    assert {one.num_tokens for one in run.done} == {task.num_new for task in tasks}


def test_requests_come_at_their_times(server: Running) -> None:
    """However long the ones before take."""
    arrivals = [0.0, 0.02, 0.3]
    run = open_loop(server.endpoint(), [Task((300, 301, 302), 400)] * 3, arrivals)
    assert run.errors == []
    for one, at in zip(run.outcomes, arrivals, strict=True):
        assert at - 0.002 <= one.sent < at + 2  # the loop counts in milliseconds
    assert run.outcomes[1].sent < run.outcomes[0].end


def test_what_is_refused_is_told(server: Running) -> None:
    too_long = Task((300,) * 4000, 2)
    run = open_loop(server.endpoint(), [too_long, Task((300,), 2)], [0.0, 0.0])
    assert [one.error is None for one in run.outcomes] == [False, True]
    assert run.errors[0].startswith("status 400")
    assert "context" in run.errors[0]
    nobody = open_loop(Endpoint("127.0.0.1", free_port(), "bench"), [Task((300,), 2)], [0.0])
    assert nobody.errors[0].startswith("no connection")


def test_one_beside_others(server: Running) -> None:
    endpoint, probes = server.endpoint(), [Task((300, 301), 3)] * 4
    crowd = iter(mixed(200, VOCAB, 3, 0.2))
    found = measure_fairness(endpoint, probes[:3], probes, Others(endpoint, crowd, num_streams=6))
    assert (len(found.idle_s), len(found.busy_s)) == (2, 4)
    assert min(*found.idle_s, *found.busy_s, found.step_s) > 0
    assert found.ratio == (max(found.busy_s) - found.step_s) / max(found.idle_s)
    with pytest.raises(EngineError, match="no more tasks"):
        measure_fairness(endpoint, probes, probes, Others(endpoint, iter(mixed(6, VOCAB, 4, 0.1)), 6, num_begun=7))
    with pytest.raises(EngineError, match="failed: status 400"):
        measure_fairness(endpoint, [Task((300,) * 4000, 2)], probes, Others(endpoint, crowd, 6))


def test_a_long_prompt_stops_others(server: Running) -> None:
    readers = [Task((300 + number, 301), 400) for number in range(3)]
    assert worst_over_usual(server.endpoint(), readers, Task((300,) * 200, 1), 5) > 1
    with pytest.raises(EngineError, match="ended too early: it was too short"):
        worst_over_usual(server.endpoint(), [Task((300, 301), 3)], Task((300,) * 9, 1), 5)


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


def test_goodput_counts_those_within_the_limits() -> None:
    def outcome(ttft: float, *gaps: float, error: str | None = None) -> Outcome:
        times = [ttft]
        for gap in gaps:
            times.append(times[-1] + gap)
        return Outcome(0.0, tuple(times), times[-1], len(times), error)

    fast, late = outcome(0.5, 0.1, 0.1), outcome(2.1, 0.1)
    jerky = outcome(0.5, *[0.05] * 10, 0.9, *[0.05] * 10)  # one pause of 21 gaps
    slow, failed = outcome(0.5, 0.3, 0.3), outcome(0.1, 0.1, error="status 500")
    run = Run([fast, late, jerky, slow, failed], seconds=8.0)
    found = point("surefoot", 1.0, run, offered_s=10.0)
    assert (found.goodput, found.goodput_by_mean, found.goodput_by_worst) == (0.2, 0.2, 0.1)
    assert (found.num_requests, found.num_failed, found.seconds) == (5, 1, 10.0)
    assert found.tokens_per_second == (3 + 2 + 22 + 3) / 10
    assert found.ttft_p95_s == 2.1
    assert found.error == "status 500"


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([], 0.5) is None


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    port = free_port()
    with (
        pytest.raises(EngineError, match=r"ended with code 1: .*not-there"),
        running(own_launch(tmp_path / "not-there.gguf", port), port),
    ):
        pass


def test_one_core_is_what_the_command_gets() -> None:
    say_cores = Launch(("python", "-c", "pass"), "/")
    with one_core(say_cores, "test") as (launch, way):
        assert launch.command[-3:] == say_cores.command
        assert way in ("quota", "affinity")
        assert launch.command[0] == "sh" if way == "quota" else launch.command[0].endswith("taskset")


def test_a_plot_has_every_point() -> None:
    root = ElementTree.fromstring(line_plot("a < b", "x", "y", {"one": [(1, 2), (2, 3)], "two": [(1, 1), (2, 0)]}))
    shapes = [child.tag.partition("}")[2] for child in root]
    assert (shapes.count("polyline"), shapes.count("circle")) == (2, 4)
    assert {"a < b", "one", "two", "1", "2"} <= {child.text for child in root}
