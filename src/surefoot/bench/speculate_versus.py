"""Our speculation beside peers': each peer as two servers, without and with its own, in turns on the same prompts.

Tokens are those that each one generated, by its own count: with other formats of weights, answers differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from surefoot.bench.facts import progress
from surefoot.bench.figures import Measurements, MissingError, Question, median, select
from surefoot.bench.load import Endpoint, Run, closed_loop
from surefoot.bench.peers.serving import PEERS, Room, ServingPeer, StartedPeers, speculating, start_peers
from surefoot.bench.timing import Budget, Case, EngineError, Interleaver, Label, Measurement, ratios
from surefoot.bench.workloads import Task

Say = Callable[[str], None]

KIND = "speculation versus"
OURS = "surefoot"
LOADS = (("edit", 1), ("edit", 8), ("chat", 1))
NAMES = {"edit": "edits and extraction", "chat": "free chat"}


@dataclass(frozen=True)
class Load:
    """Prompts to answer greedily, so many at once: where one ends, the next begins."""

    kind: str
    at_once: int
    prompts: tuple[tuple[int, ...], ...]
    num_new: int  # at most, of each answer


@dataclass(frozen=True)
class Answered:
    """One at a time: seconds from each answer's first token to its end, and the tokens after the first. More at once:
    the whole time, and all tokens."""

    seconds: float
    num_tokens: int


Answer = Callable[[Load], Answered]


@dataclass(frozen=True)
class SpeculateVersus:
    measurements: Measurements
    peers: StartedPeers


def run_speculate_versus(
    model: Path, ours: Answer, loads: Sequence[Load], peers: Sequence[ServingPeer], room: Room, budget: Budget, say: Say
) -> SpeculateVersus:
    """ours: with speculation. peers: both of each."""
    with ExitStack() as stack:
        started = start_peers(stack, peers, model, room, say)
        answers = {OURS: ours} | {name: partial(answer, at) for name, at in started.endpoints.items()}
        interleaver = Interleaver([], budget, report=lambda *at: say(progress(*at)))
        found = interleaver.run([_case(load, name, answers[name]) for load in loads for name in answers])
    started.absent |= interleaver.failures
    return SpeculateVersus(found, started)


def _case(load: Load, name: str, answer: Answer) -> Case:
    """A call is a token."""
    most = len(load.prompts) * load.num_new

    def run() -> float:
        got = answer(load)
        if not got.num_tokens:
            raise EngineError("answers ended with their first token")
        return got.seconds / got.num_tokens * most

    labels: dict[str, Label] = {"task": load.kind, "requests": load.at_once}
    return Case(f"versus/{load.kind}/{load.at_once}/{name}", KIND, run, most, engine=name, labels=labels)


def answer(endpoint: Endpoint, load: Load) -> Answered:
    """By a server that has read the prompts before. Raises EngineError if a request fails."""
    tasks = [Task(prompt, load.num_new, is_forced=False) for prompt in load.prompts]
    _done(closed_loop(endpoint, [replace(task, num_new=1) for task in tasks], len(tasks), streamed=False))
    if load.at_once > 1:
        run = _done(closed_loop(endpoint, tasks, load.at_once, streamed=False))
        return Answered(run.seconds, sum(one.num_tokens for one in run.done))
    begun = [one for one in _done(closed_loop(endpoint, tasks, 1)).done if one.times]
    return Answered(sum(one.end - one.times[0] for one in begun), sum(one.num_tokens - 1 for one in begun))


def _done(run: Run) -> Run:
    if run.errors:
        raise EngineError(f"{len(run.errors)} of {len(run.outcomes)} requests failed: {run.errors[0]}")
    return run


def speculate_versus_questions(versus: SpeculateVersus | None, absent: Mapping[str, str]) -> Iterator[Question]:
    def measured(name: str, kind: str, at_once: int) -> list[Measurement]:
        if versus is None or name in absent:
            raise MissingError(absent[name])
        return select(versus.measurements, KIND, name, task=kind, requests=at_once)

    def speedup(peer: str, kind: str, at_once: int) -> float:
        off, on = (measured(name, kind, at_once) for name in (peer, speculating(peer)))
        return median(ratios(off, on))

    def over_best(peer: str, kind: str, at_once: int) -> float:
        endpoints = versus.peers.endpoints if versus else {}
        ways = [name for name in (peer, speculating(peer)) if name in endpoints and name not in absent] or [peer]
        ours = partial(measured, OURS, kind, at_once)
        return min(median(ratios(measured(name, kind, at_once), ours())) for name in ways)

    for peer in PEERS:
        for kind, at_once in LOADS:
            load, name = f"{NAMES[kind]}, {at_once} at once", f"{kind}_{at_once}"
            meaning = f"{load}: {peer}'s speed with its speculation over without"
            yield Question(f"{peer}_speedup_{name}", meaning, None, partial(speedup, peer, kind, at_once))
            meaning = f"{load}: our tokens/s over {peer}'s, the better of its two"
            yield Question(f"vs_{peer}_{name}", meaning, None, partial(over_best, peer, kind, at_once))
