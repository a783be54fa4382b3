"""Runs `surefoot bench engine`: many requests at once, compared with the machine's limit and with static batching."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table

from surefoot.api import LLM
from surefoot.bench.engine.figures import engine_questions, versus_questions
from surefoot.bench.engine.step_profile import StepProfile, profile_steps
from surefoot.bench.engine.versus import run_versus
from surefoot.bench.harness.engine_load import EngineLoad, EngineSpeed
from surefoot.bench.harness.loaded_model import gauges, load_model
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import make_table, model_parts, model_title, title
from surefoot.bench.harness.timing import Case, Interleaver, Label, TimeBudget
from surefoot.bench.harness.workloads import LONG_PROMPT, Task, mixed, num_tokens, queued, scaled, shared_prefix
from surefoot.bench.peers.serving import NO_PEER, PEERS, ServingPeer

MIB = 1 << 20
MIN_SCALE = 1 / 16  # of the lengths of requests
STATIC_SLOTS, NUM_QUEUED, NUM_STREAMS, NUM_SHARING = 8, 64, 8, 32


@dataclass(frozen=True)
class EngineSettings:
    """How much to measure. Lengths of requests are scaled so that the rounds fit into the time."""

    seconds: float = 300  # for our own cases, without loading
    rounds: int = 3
    peer_seconds: float = 1500  # for comparisons with peers, without starting them
    peer_rounds: int = 2
    kv_bytes: int = 1200 * MIB  # size of the KV cache
    footprint_bytes: int = 1024 * MIB  # read by the bandwidth gauge
    float_format: str = "w8"  # format that float weights are converted to


QUICK = EngineSettings(seconds=34, rounds=1, peer_seconds=120, peer_rounds=1, footprint_bytes=512 * MIB)


def run_engine(
    model: str,
    settings: EngineSettings,
    variant: str | None,
    threads: int | None,
    peers: Sequence[ServingPeer],
    say: Say,
) -> BenchResults:
    def open_model() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=LONG_PROMPT + 128, max_running=32,
            kv_bytes=settings.kv_bytes, speculate="off", float_format=settings.float_format,
        )  # fmt: skip

    loaded = load_model(model, open_model, say)
    llm, load = loaded.llm, EngineLoad(loaded.llm)
    say("finding how much fits into the time")
    cases = list(_cases(load, load.speed(), settings.seconds / settings.rounds))
    # Measuring the speed has warmed up the engine, so the Interleaver's warm-up round counts as a round.
    budget = TimeBudget(settings.seconds - loaded.run.seconds, rounds=settings.rounds - 1)
    limits = gauges(llm.backend, settings.footprint_bytes)
    interleaver = Interleaver(limits, budget, report=lambda *at: say(progress(*at)))
    measurements = interleaver.run(cases)
    described = loaded.described | {
        "scales": {case.name: case.labels["percent"] / 100 for case in cases},  # type: ignore[operator]
        "block_size": llm.capacity.layout.block_size,
        "kv_bytes": llm.capacity.layout.total_bytes,
        "step_profile": asdict(profile_steps(llm, NUM_SHARING)),
    }
    absent = dict.fromkeys(PEERS, NO_PEER)
    versus = None
    if peers:
        versus = run_versus(Path(model), load, peers, settings.peer_seconds, settings.peer_rounds, say)
        absent, described["versus_scale"] = versus.peers.absent, versus.size
    questions = [*engine_questions(measurements, load), *versus_questions(versus, absent)]
    figures = [question.figure() for question in questions]
    named, compared = (versus.peers.described, versus.measurements) if versus else ({}, {})
    return BenchResults({**measurements, **compared}, figures, described, named, absent, loaded.run.facts(llm.backend))


def _cases(load: EngineLoad, speed: EngineSpeed, seconds: float) -> Iterator[Case]:
    """The cases, with lengths scaled to their shares of the time. The Interleaver skips cases that still do not fit."""
    llm, vocab, token, step = load.llm, load.vocab, speed.token_s, speed.step_s

    def scale(share: float, whole_s: float, longest: int) -> float:
        """The scale of a case. share: of the time. whole_s: estimated seconds at full length. longest: tokens of the
        longest request."""
        return min(max(MIN_SCALE, share * seconds / whole_s), 1.0, (llm.max_context - 8) / longest)

    def case(name: str, kind: str, size: float, run: Callable[[], float], **labels: Label) -> Case:
        return Case(name, kind, run, labels={**labels, "percent": round(100 * size)})

    for users, share, whole in ((32, 0.18, 6200 * token + 260 * step), (8, 0.05, 1600 * token + 130 * step)):
        size = scale(share, whole, 384)
        run, tokens = partial(_mix, load, users, size), num_tokens(mixed(users, vocab, 0, size))
        yield case(f"mix/{users}", "mix", size, run, requests=users, tokens=tokens)
    size = scale(0.11, 3 * LONG_PROMPT * token, LONG_PROMPT)
    long = min(scaled(LONG_PROMPT, size), llm.max_context - 64)
    yield case("long prompt", "gap", size, partial(load.gaps, NUM_STREAMS, long), tokens=long)
    # num_steps: estimated total over all kinds of batching.
    for lengths, share, num_steps in (("log-uniform", 0.22, 5000), ("50 or 200", 0.10, 2600), ("equal", 0.05, 1600)):
        size = scale(share, num_steps * step, 416)
        for way in ("continuous", "static", *(["dropping"] if lengths == "log-uniform" else [])):
            run = partial(_queued, load, lengths, way, size)
            yield case(f"batching/{lengths}/{way}", "batching", size, run, way=way, lengths=lengths)
    size = scale(0.16, 36_000 * token + 64 * step, 1072)
    for way in ("cached", "cold"):
        yield case(f"shared prefix/{way}", "prefix", size, partial(_shared, load, way == "cached", size), way=way)


def _mix(load: EngineLoad, users: int, size: float) -> float:
    tasks = mixed(users, load.vocab, load.seed(), size)
    if users != 32:
        return load.run(tasks)
    seconds = load.run_observed(tasks)
    if not load.observed.full_steps[-1].seconds:
        # The first request ended before the last started to decode. Short prompts make all decode at once.
        del load.observed.full_steps[-1]
        load.run_observed([Task(task.prompt[:8], 16) for task in mixed(users, load.vocab, load.seed())])
    return seconds


def _shared(load: EngineLoad, cached: bool, size: float) -> float:
    return load.run(shared_prefix(NUM_SHARING, load.vocab, load.seed(), size, cached))


def _queued(load: EngineLoad, lengths: str, way: str, size: float) -> float:
    num_queued = NUM_QUEUED if size > MIN_SCALE else 3 * STATIC_SLOTS
    tasks = queued(num_queued, load.vocab, load.seed(), lengths, size)
    if way == "continuous":
        return load.run(tasks, STATIC_SLOTS)
    return load.run_static(tasks, STATIC_SLOTS, drops=way == "dropping")


def show_engine(results: BenchResults, console: Console) -> None:
    console.print(
        Group(
            *model_parts(results, _engine_times(results), _step_profile(StepProfile(**results.model["step_profile"])))
        )
    )


def _engine_times(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "lengths", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.case.kind != "limit" and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0)) if m.case.kind in ("mix", "versus") else 0.0
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(title(m), f"{m.case.labels['percent']} %", f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table


def _step_profile(profile: StepProfile) -> Table:
    heading = f"A step that decodes {profile.num_requests}: {profile.total * 1e3:.2f} ms"
    table = make_table(heading, "part", "µs", "share")
    for name, seconds in profile.parts.items():
        table.add_row(name, f"{seconds * 1e6:,.0f}", f"{seconds / profile.total:.1%}")
    table.add_row("of sampling, native", f"{profile.sampling_native * 1e6:,.0f}", "")
    return table
