"""Runs `python -m benchmarks speculate`: the same requests with and without speculation, in turns, in one process."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.speculate.answers import Answerer, total_used
from benchmarks.speculate.cost import BATCHES, measure_costs
from benchmarks.speculate.figures import TARGETS, speculate_questions, speculate_versus_questions
from benchmarks.speculate.prompts import NUM_CHATS
from benchmarks.speculate.versus import LOADS, SpeculateVersus, run_speculate_versus
from surefoot.api import LLM
from surefoot.bench.harness.loaded_model import gauges, load_model
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.timing import Case, Interleaver, TimeBudget
from surefoot.bench.peers.serving import NO_PEER, PEERS, PeerLimits, ServingPeer
from surefoot.speculate import Speculator

MIB = 1 << 20
CASES = tuple(TARGETS)
CONTEXT = 2048
PEER_STREAMS = 16  # one per prompt, so that a server that caches prompts by slot evicts none
COST_SHARE = 0.15  # of the time, for measuring the cost of drafts


@dataclass(frozen=True)
class SpeculateSettings:
    """How much to measure."""

    seconds: float = 600  # for our own cases, without loading
    rounds: int = 5
    num_new: int = 192  # tokens of the longest answer
    num_alone: int = 4  # prompts of a case that runs one request at a time
    num_turns: int = 2  # prompts for each place of the other cases, where there are so many
    batches: Sequence[int] = BATCHES  # for the cost of drafts
    peer_seconds: float = 2400  # for comparisons with peers, without starting them
    peer_rounds: int = 2
    footprint_bytes: int = 512 * MIB  # read by the bandwidth gauge
    cases: Sequence[tuple[str, int]] = CASES  # kind of prompts, and requests at once


# A 1.5B model on two cores answers each case once.
QUICK = SpeculateSettings(
    seconds=110, rounds=2, num_new=24, num_alone=2, num_turns=1, batches=(1, 8), peer_seconds=120, peer_rounds=1
)


def run_speculate(
    model: str,
    settings: SpeculateSettings,
    variant: str | None,
    threads: int | None,
    speculate: str,
    peers: Sequence[ServingPeer],
    say: Say,
) -> BenchResults:
    """peers: two servers of each peer, without and with speculation."""

    def load() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=CONTEXT, max_running=NUM_CHATS, speculate=speculate
        )

    loaded = load_model(model, load, say)
    llm = loaded.llm
    if llm.speculator is None:
        raise ValueError("there is nothing to measure without speculation: give another --speculate")
    say("measuring what drafts cost")
    costs = measure_costs(llm, settings.batches, COST_SHARE * settings.seconds)
    llm.engine.reset()
    answerer = Answerer(llm, settings.num_new, settings.num_alone, settings.num_turns)
    cases = list(_cases(answerer, settings, llm.speculator))
    budget = TimeBudget(settings.seconds - loaded.run.seconds, rounds=settings.rounds)
    limits = gauges(llm.backend, settings.footprint_bytes)
    measurements = Interleaver(limits, budget, report=lambda *at: say(progress(*at))).run(cases)
    described = loaded.described | {
        "speculate": speculate,
        "costs": [asdict(cost) for cost in costs],
        "drafts": {name: asdict(total_used(runs)) for name, runs in answerer.used.items()},
    }
    versus = None
    if peers:
        llm.speculator.is_paused = False
        versus = _versus(Path(model), answerer, llm, peers, settings, say)
    absent = versus.peers.absent if versus else dict.fromkeys(PEERS, NO_PEER)
    named, compared = (versus.peers.described, versus.measurements) if versus else ({}, {})
    questions = [*speculate_questions(measurements, answerer.used), *speculate_versus_questions(versus, absent)]
    figures = [question.figure() for question in questions]
    return BenchResults({**measurements, **compared}, figures, described, named, absent, loaded.run.facts(llm.backend))


def _versus(
    model: Path, answerer: Answerer, llm: LLM, peers: Sequence[ServingPeer], settings: SpeculateSettings, say: Say
) -> SpeculateVersus:
    loads = [answerer.load(kind, at_once) for kind, at_once in LOADS]
    peer_limits = PeerLimits(llm.backend.threads, PEER_STREAMS, CONTEXT, PEER_STREAMS * CONTEXT)
    budget = TimeBudget(settings.peer_seconds, settings.peer_rounds)
    return run_speculate_versus(model, answerer.answer, loads, peers, peer_limits, budget, say)


def _cases(answerer: Answerer, settings: SpeculateSettings, speculator: Speculator) -> Iterator[Case]:
    for kind, num_requests in settings.cases:
        for way in ("off", "on"):
            run = partial(answerer.run, kind, num_requests, speculator, way == "on")
            yield Case(f"{kind}/{num_requests}/{way}", kind, run, labels={"requests": num_requests, "way": way})
