"""Compares our engine with peers' servers on mixed workloads that all of them can run. Engines take turns.

Peers answer over HTTP without streaming, which costs them a few milliseconds per run.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import uvloop

from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.figures import Measurements, percentile
from surefoot.bench.harness.http_load import Endpoint, Outcome, ask, streams_s
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.timing import Case, EngineError, Interleaver, Label, TimeBudget
from surefoot.bench.harness.workloads import LONG_PROMPT, Task, ids, mixed, num_tokens, scaled
from surefoot.bench.peers.serving import PeerLimits, ServingPeer, StartedPeers, start_peers

POLL_S = 0.01
Runner = Callable[[list[Task]], float]  # seconds for all tasks at once
OURS = "surefoot"
TYPICAL_TOKENS = 1536
NUM_READERS, NUM_READ, NUM_QUIET = 8, 2000, 12
TRIAL, MIN_SIZE = 1 / 16, 1 / 16


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


@dataclass(frozen=True)
class Workload:
    """Mixed requests that arrive at the same time."""

    name: str
    num_requests: int
    shared: int  # length of a common prefix that is already cached
    share: float  # of the time, roughly
    target: float  # for our speed over a peer's


WORKLOADS = (
    Workload("8", 8, 0, 0.12, 1.4),
    Workload("32", 32, 0, 0.33, 2.0),
    Workload("shared32", 32, 1024, 0.55, 2.0),
)


@dataclass(frozen=True)
class Versus:
    """Results of the comparison with peers."""

    measurements: Measurements
    peers: StartedPeers
    size: float  # scale of the workloads' lengths
    gaps: Mapping[str, float | str]  # by peer: `worst_over_usual` with a long prompt, or the reason for its absence


def run_versus(
    model: Path, load: EngineLoad, peers: Sequence[ServingPeer], seconds: float, rounds: int, say: Say
) -> Versus:
    peer_limits = PeerLimits(load.llm.backend.threads, 32, load.llm.max_context, 32 * TYPICAL_TOKENS)
    with ExitStack() as stack:
        started = start_peers(stack, peers, model, peer_limits, say)
        runners: dict[str, Runner] = {OURS: load.run}
        for name, endpoint in started.endpoints.items():
            runners[name] = partial(streams_s, endpoint, streamed=False)
        size = _size(load, runners, started, seconds / (rounds + 1), say)
        cases = [case for workload in WORKLOADS for case in _cases(load, runners, workload, size)]
        interleaver = Interleaver([], TimeBudget(1.5 * seconds, rounds), report=lambda *at: say(progress(*at)))
        measurements = interleaver.run(cases)
        started.absent |= interleaver.failures
        gaps = {name: _gap(load, started, name, size, say) for name in started.endpoints}
    return Versus(measurements, started, size, gaps)


def _gap(load: EngineLoad, started: StartedPeers, name: str, size: float, say: Say) -> float | str:
    if reason := started.absent.get(name):
        return reason
    say(f"a long prompt at {name}")
    num_long = min(scaled(LONG_PROMPT, size), load.llm.max_context - 64)
    readers = [Task(task.prompt[:32], NUM_READ) for task in mixed(NUM_READERS, load.vocab, load.seed())]
    long = Task(ids(random.Random(load.seed()), num_long, load.vocab), 1)
    try:
        return worst_over_usual(started.endpoints[name], readers, long, NUM_QUIET)
    except EngineError as failure:
        return str(failure)


def _size(load: EngineLoad, runners: dict[str, Runner], started: StartedPeers, seconds: float, say: Say) -> float:
    """The scale of lengths at which a round takes `seconds`, from short runs that also warm up. Excludes peers that
    fail."""
    trial_s = 0.0
    for name in list(runners):
        say(f"trying {name}")
        try:
            trial_s += runners[name](mixed(32, load.vocab, load.seed(), TRIAL))
        except EngineError as failure:
            del runners[name]
            started.absent[name] = str(failure)
    (whole,) = (workload.share for workload in WORKLOADS if workload.name == "32")
    return min(1.0, max(MIN_SIZE, seconds * whole / (trial_s / TRIAL)))


def _cases(load: EngineLoad, runners: Mapping[str, Runner], workload: Workload, size: float) -> Iterator[Case]:
    count, shared = workload.num_requests, round(workload.shared * size)
    tokens = num_tokens(mixed(count, load.vocab, 0, size))

    def run(runner: Runner) -> float:
        tasks = mixed(count, load.vocab, load.seed(), size, shared)
        if shared:
            # One request per stream: some peers cache a prefix once, others once for each stream.
            runner([Task(tasks[0].prompt[:shared], 1)] * count)
        return runner(tasks)

    for name, runner in runners.items():
        labels: dict[str, Label] = {"workload": workload.name, "tokens": tokens, "percent": round(100 * size)}
        yield Case(f"versus/{workload.name}/{name}", "versus", partial(run, runner), engine=name, labels=labels)
