"""Runs `python -m benchmarks batching`: static batching, no prefix cache, and where the time of a step goes."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

from rich.console import Console, Group
from rich.table import Table

from benchmarks.batching.figures import SNAPSHOTS_PROMPT, batching_questions
from benchmarks.batching.step_profile import StepProfile, profile_steps
from benchmarks.batching.workloads import queued, run_static, shared_prefix
from surefoot.api import LLM
from surefoot.bench.engine.run import engine_times
from surefoot.bench.harness.engine_load import MIN_SCALE, EngineLoad, EngineSpeed
from surefoot.bench.harness.loaded_model import load_model
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, notes
from surefoot.bench.harness.timing import Case, Interleaver, Label, TimeBudget
from surefoot.bench.model.run import OneUser
from surefoot.scheduler import Scheduler

STATIC_SLOTS, NUM_QUEUED, NUM_SHARING = 8, 64, 32


@dataclass(frozen=True)
class BatchingSettings:
    """How much to measure. Lengths of requests are scaled so that the rounds fit into the time."""

    seconds: float = 180  # without loading
    rounds: int = 3
    kv_bytes: int = 1200 << 20  # size of the KV cache
    float_format: str = "w8"  # format that float weights are converted to


QUICK = BatchingSettings(seconds=34, rounds=1)


def run_batching(
    model: str, settings: BatchingSettings, variant: str | None, threads: int | None, say: Say
) -> BenchResults:
    def open_model() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=2048, max_running=32, kv_bytes=settings.kv_bytes,
            speculate="off", float_format=settings.float_format,
        )  # fmt: skip

    loaded = load_model(model, open_model, say)
    llm, load = loaded.llm, EngineLoad(loaded.llm)
    say("finding how much fits into the time")
    cases = [*_snapshot_cases(llm), *_cases(load, load.speed(), settings.seconds / settings.rounds)]
    # Measuring the speed has warmed up the engine, so the Interleaver's warm-up round counts as a round.
    budget = TimeBudget(settings.seconds - loaded.run.seconds, rounds=settings.rounds - 1)
    measurements = Interleaver([], budget, report=lambda *at: say(progress(*at))).run(cases)
    described = loaded.described | {
        "block_size": llm.capacity.layout.block_size, "step_profile": asdict(profile_steps(llm, NUM_SHARING)),
    }  # fmt: skip
    answers = [question.figure() for question in batching_questions(measurements, llm.capacity, load.vocab)]
    return BenchResults(measurements, answers, described, {}, {}, loaded.run.facts(llm.backend))


def _cases(load: EngineLoad, speed: EngineSpeed, seconds: float) -> Iterator[Case]:
    """The cases, with lengths scaled to their shares of the time. The Interleaver skips cases that still do not fit."""
    token, step = speed.token_s, speed.step_s
    # num_steps: estimated total over all kinds of batching.
    for lengths, share, num_steps in (("log-uniform", 0.38, 5000), ("50 or 200", 0.17, 2600), ("equal", 0.09, 1600)):
        size = load.scale(share * seconds, num_steps * step, 416)
        for way in ("continuous", "static", *(["dropping"] if lengths == "log-uniform" else [])):
            run = partial(_queued, load, lengths, way, size)
            labels: dict[str, Label] = {"way": way, "lengths": lengths, "percent": round(100 * size)}
            yield Case(f"batching/{lengths}/{way}", "batching", run, labels=labels)
    size = load.scale(0.27 * seconds, 36_000 * token + 64 * step, 1072)
    for way in ("cached", "cold"):
        run = partial(_shared, load, way == "cached", size)
        yield Case(f"shared prefix/{way}", "prefix", run, labels={"way": way, "percent": round(100 * size)})


def _snapshot_cases(llm: LLM) -> Iterator[Case]:
    """For models with states: a prompt with snapshots of them, and without snapshots and prefix tree."""
    user = OneUser(llm)

    def prefill(caches: bool) -> float:
        assert isinstance(llm.engine.planner, Scheduler)
        llm.engine.planner.kv.caching = caches
        try:
            return user.prefill(SNAPSHOTS_PROMPT)
        finally:
            llm.engine.planner.kv.caching = True

    for taken in ("yes", "no") if llm.config.states else ():
        labels: dict[str, Label] = {"taken": taken, "percent": 100}
        yield Case(f"snapshots/{taken}", "snapshots", partial(prefill, taken == "yes"), labels=labels)


def _shared(load: EngineLoad, cached: bool, size: float) -> float:
    return load.run(shared_prefix(NUM_SHARING, load.vocab, load.seed(), size, cached))


def _queued(load: EngineLoad, lengths: str, way: str, size: float) -> float:
    num_queued = NUM_QUEUED if size > MIN_SCALE else 3 * STATIC_SLOTS
    tasks = queued(num_queued, load.vocab, load.seed(), lengths, size)
    if way == "continuous":
        return load.run(tasks, STATIC_SLOTS)
    return run_static(load, tasks, STATIC_SLOTS, drops=way == "dropping")


def show_batching(results: BenchResults, console: Console) -> None:
    profile = StepProfile(**results.model["step_profile"])
    console.print(Group(engine_times(results), _step_profile(profile), figures(results), *notes(results)))


def _step_profile(profile: StepProfile) -> Table:
    heading = f"A step that decodes {profile.num_requests}: {profile.total * 1e3:.2f} ms"
    table = make_table(heading, "part", "µs", "share")
    for name, seconds in profile.parts.items():
        table.add_row(name, f"{seconds * 1e6:,.0f}", f"{seconds / profile.total:.1%}")
    table.add_row("of sampling, native", f"{profile.sampling_native * 1e6:,.0f}", "")
    return table
