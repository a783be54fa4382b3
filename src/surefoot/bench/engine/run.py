"""Runs `surefoot bench engine`: many requests at once, compared with the machine's limit and with peers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table

from surefoot.api import LLM
from surefoot.bench.engine.figures import engine_questions, versus_questions
from surefoot.bench.engine.versus import run_versus
from surefoot.bench.harness.engine_load import EngineLoad, EngineSpeed
from surefoot.bench.harness.loaded_model import gauges, load_model
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import make_table, model_parts, model_title, title
from surefoot.bench.harness.timing import Case, Interleaver, Label, TimeBudget
from surefoot.bench.harness.workloads import LONG_PROMPT, Task, mixed, num_tokens, scaled
from surefoot.bench.peers.serving import NO_PEER, PEERS, ServingPeer
from surefoot.formats import AUTO_FORMAT

MIB = 1 << 20
NUM_STREAMS = 8


@dataclass(frozen=True)
class EngineSettings:
    """How much to measure. Lengths of requests are scaled so that the rounds fit into the time."""

    seconds: float = 300  # for our own cases, without loading
    rounds: int = 3
    peer_seconds: float = 1500  # for comparisons with peers, without starting them
    peer_rounds: int = 2
    kv_bytes: int = 1200 * MIB  # size of the KV cache
    footprint_bytes: int = 1024 * MIB  # read by the bandwidth gauge
    float_format: str = AUTO_FORMAT  # format that float weights are converted to


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
    token, step = speed.token_s, speed.step_s

    for users, share, whole in ((32, 0.50, 6200 * token + 260 * step), (8, 0.14, 1600 * token + 130 * step)):
        size = load.scale(share * seconds, whole, 384)
        run, tokens = partial(_mix, load, users, size), num_tokens(mixed(users, load.vocab, 0, size))
        labels: dict[str, Label] = {"requests": users, "tokens": tokens, "percent": round(100 * size)}
        yield Case(f"mix/{users}", "mix", run, labels=labels)
    size = load.scale(0.30 * seconds, 3 * LONG_PROMPT * token, LONG_PROMPT)
    long = min(scaled(LONG_PROMPT, size), load.llm.max_context - 64)
    labels = {"tokens": long, "percent": round(100 * size)}
    yield Case("long prompt", "gap", partial(load.gaps, NUM_STREAMS, long), labels=labels)


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


def show_engine(results: BenchResults, console: Console) -> None:
    console.print(Group(*model_parts(results, engine_times(results))))


def engine_times(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "lengths", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.case.kind != "limit" and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0)) if m.case.kind in ("mix", "versus") else 0.0
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(title(m), f"{m.case.labels['percent']} %", f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table
