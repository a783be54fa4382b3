"""Our engine beside peers' servers, in turns, on the mixed workloads that all of them can run.

Peers are asked over HTTP for whole answers, not streams: what that costs them is a few milliseconds of a run.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from surefoot.bench.crowd import Crowd
from surefoot.bench.facts import progress
from surefoot.bench.figures import Measurements, MissingError, Question, Target, median, select
from surefoot.bench.long_prompt import worst_over_usual
from surefoot.bench.one_core import streams_s
from surefoot.bench.peers.serving import PEERS, Room, ServingPeer, StartedPeers, start_peers
from surefoot.bench.timing import Budget, Case, EngineError, Interleaver, Label, ratios
from surefoot.bench.workloads import LONG_PROMPT, Task, ids, mixed, num_tokens, scaled

Say = Callable[[str], None]
Runner = Callable[[list[Task]], float]  # seconds for all of them at once

OURS = "surefoot"
TYPICAL_TOKENS = 1536
NUM_READERS, NUM_READ, NUM_QUIET = 8, 2000, 12
TRIAL, LEAST_SIZE = 1 / 16, 1 / 16


@dataclass(frozen=True)
class Workload:
    """Mixed requests at once, behind a prefix that is cached already. share: of the time, more or less."""

    name: str
    num_requests: int
    shared: int
    share: float
    target: float  # of our speed over a peer's


WORKLOADS = (
    Workload("8", 8, 0, 0.12, 1.4),
    Workload("32", 32, 0, 0.33, 2.0),
    Workload("shared32", 32, 1024, 0.55, 2.0),
)


@dataclass(frozen=True)
class Versus:
    """size: of the workloads' lengths."""

    measurements: Measurements
    peers: StartedPeers
    size: float
    gaps: Mapping[str, float | str]  # when a long prompt arrives: the worst hundredth over the median, or why not


def run_versus(
    model: Path, crowd: Crowd, peers: Sequence[ServingPeer], seconds: float, rounds: int, say: Say
) -> Versus:
    room = Room(crowd.llm.backend.threads, 32, crowd.llm.max_context, 32 * TYPICAL_TOKENS)
    with ExitStack() as stack:
        started = start_peers(stack, peers, model, room, say)
        runners: dict[str, Runner] = {OURS: crowd.run}
        for name, endpoint in started.endpoints.items():
            runners[name] = partial(streams_s, endpoint, streamed=False)
        size = _size(crowd, runners, started, seconds / (rounds + 1), say)
        cases = [case for workload in WORKLOADS for case in _cases(crowd, runners, workload, size)]
        interleaver = Interleaver([], Budget(1.5 * seconds, rounds), report=lambda *at: say(progress(*at)))
        found = interleaver.run(cases)
        started.absent |= interleaver.failures
        gaps = {name: _gap(crowd, started, name, size, say) for name in started.endpoints}
    return Versus(found, started, size, gaps)


def _gap(crowd: Crowd, started: StartedPeers, name: str, size: float, say: Say) -> float | str:
    if reason := started.absent.get(name):
        return reason
    say(f"a long prompt at {name}")
    num_long = min(scaled(LONG_PROMPT, size), crowd.llm.max_context - 64)
    readers = [Task(task.prompt[:32], NUM_READ) for task in mixed(NUM_READERS, crowd.vocab, crowd.seed())]
    long = Task(ids(random.Random(crowd.seed()), num_long, crowd.vocab), 1)
    try:
        return worst_over_usual(started.endpoints[name], readers, long, NUM_QUIET)
    except EngineError as failure:
        return str(failure)


def _size(crowd: Crowd, runners: dict[str, Runner], started: StartedPeers, seconds: float, say: Say) -> float:
    """From short runs, which also warm up: one round of everything shall take so long. Who fails is left out."""
    took = 0.0
    for name in list(runners):
        say(f"trying {name}")
        try:
            took += runners[name](mixed(32, crowd.vocab, crowd.seed(), TRIAL))
        except EngineError as failure:
            del runners[name]
            started.absent[name] = str(failure)
    (whole,) = (one.share for one in WORKLOADS if one.name == "32")
    return min(1.0, max(LEAST_SIZE, seconds * whole / (took / TRIAL)))


def _cases(crowd: Crowd, runners: Mapping[str, Runner], workload: Workload, size: float) -> Iterator[Case]:
    count, shared = workload.num_requests, round(workload.shared * size)
    tokens = num_tokens(mixed(count, crowd.vocab, 0, size))

    def run(runner: Runner) -> float:
        tasks = mixed(count, crowd.vocab, crowd.seed(), size, shared)
        if shared:
            # As many at once as will come: some keep it once, some once for each stream.
            runner([Task(tasks[0].prompt[:shared], 1)] * count)
        return runner(tasks)

    for name, runner in runners.items():
        labels: dict[str, Label] = {"workload": workload.name, "tokens": tokens, "percent": round(100 * size)}
        yield Case(f"versus/{workload.name}/{name}", "versus", partial(run, runner), engine=name, labels=labels)


def versus_questions(versus: Versus | None, absent: Mapping[str, str]) -> Iterator[Question]:
    def ratio(peer: str, workload: str) -> float:
        if versus is None or peer in absent:
            raise MissingError(absent[peer])
        theirs, ours = (select(versus.measurements, "versus", name, workload=workload) for name in (peer, OURS))
        return median(ratios(theirs, ours))

    def gap(peer: str) -> float:
        if versus is None or peer in absent:
            raise MissingError(absent[peer])
        found = versus.gaps[peer]
        if isinstance(found, str):
            raise MissingError(found)
        return found

    for peer in PEERS:
        meaning = f"the same at {peer}: 8 streams while a long prompt comes, worst hundredth of gaps over median"
        yield Question(f"gap_p99_over_median_{peer}", meaning, None, partial(gap, peer))
    for workload in WORKLOADS:
        for peer in PEERS:
            meaning = f"output tokens/s over {peer}, mixed requests: {workload.name}"
            answer = partial(ratio, peer, workload.name)
            yield Question(f"vs_{peer}_{workload.name}", meaning, Target(workload.target), answer)
