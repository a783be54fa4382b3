"""Compares our speculation with peers'. Each peer runs as two servers, without and with speculation, in turns.

Each engine counts its own tokens: answers differ, because weight formats differ.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from surefoot.bench.harness.figures import Measurements
from surefoot.bench.harness.http_load import Endpoint, LoadResult, closed_loop
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.timing import Case, EngineError, Interleaver, Label, TimeBudget
from surefoot.bench.harness.workloads import Task
from surefoot.bench.peers.serving import PeerLimits, ServingPeer, StartedPeers, start_peers

KIND = "speculation versus"
OURS = "surefoot"
LOADS = (("edit", 1), ("edit", 8), ("chat", 1))


@dataclass(frozen=True)
class PromptLoad:
    """Prompts to answer greedily, with `at_once` requests in flight."""

    kind: str
    at_once: int
    prompts: tuple[tuple[int, ...], ...]
    num_new: int  # tokens of the longest answer


@dataclass(frozen=True)
class Answered:
    """The time and tokens of a load. With one request at a time, both count from each answer's first token on."""

    seconds: float
    num_tokens: int


Answer = Callable[[PromptLoad], Answered]


@dataclass(frozen=True)
class SpeculateVersus:
    """Results of the comparison with peers."""

    measurements: Measurements
    peers: StartedPeers


def run_speculate_versus(
    model: Path,
    ours: Answer,
    loads: Sequence[PromptLoad],
    peers: Sequence[ServingPeer],
    peer_limits: PeerLimits,
    budget: TimeBudget,
    say: Say,
) -> SpeculateVersus:
    """ours: answers with speculation. peers: two servers of each peer."""
    with ExitStack() as stack:
        started = start_peers(stack, peers, model, peer_limits, say)
        answers = {OURS: ours} | {name: partial(answer, at) for name, at in started.endpoints.items()}
        interleaver = Interleaver([], budget, report=lambda *at: say(progress(*at)))
        measurements = interleaver.run([_case(load, name, answers[name]) for load in loads for name in answers])
    started.absent |= interleaver.failures
    return SpeculateVersus(measurements, started)


def _case(load: PromptLoad, name: str, answer: Answer) -> Case:
    """A case that counts each token as a call: its time per call is the time per token."""
    max_tokens = len(load.prompts) * load.num_new

    def run() -> float:
        answered = answer(load)
        if not answered.num_tokens:
            raise EngineError("answers ended with their first token")
        return answered.seconds / answered.num_tokens * max_tokens

    labels: dict[str, Label] = {"task": load.kind, "requests": load.at_once}
    return Case(f"versus/{load.kind}/{load.at_once}/{name}", KIND, run, max_tokens, engine=name, labels=labels)


def answer(endpoint: Endpoint, load: PromptLoad) -> Answered:
    """Answers a load at a server, with the prompts in its cache. Raises EngineError if a request fails."""
    tasks = [Task(prompt, load.num_new, is_forced=False) for prompt in load.prompts]
    _done(closed_loop(endpoint, [replace(task, num_new=1) for task in tasks], len(tasks), streamed=False))
    if load.at_once > 1:
        run = _done(closed_loop(endpoint, tasks, load.at_once, streamed=False))
        return Answered(run.seconds, sum(outcome.num_tokens for outcome in run.done))
    begun = [outcome for outcome in _done(closed_loop(endpoint, tasks, 1)).done if outcome.times]
    return Answered(
        sum(outcome.end - outcome.times[0] for outcome in begun), sum(outcome.num_tokens - 1 for outcome in begun)
    )


def _done(run: LoadResult) -> LoadResult:
    if run.errors:
        raise EngineError(f"{len(run.errors)} of {len(run.outcomes)} requests failed: {run.errors[0]}")
    return run
