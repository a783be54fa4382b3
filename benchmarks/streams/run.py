"""Runs `python -m benchmarks streams`: the same requests through the engine in this process and as streams, in turns.

Both load the model, so this takes its memory twice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group

from surefoot.api import LLM
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.figures import Question, Target, select
from surefoot.bench.harness.http_load import streams_s
from surefoot.bench.harness.loaded_model import load_model
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.server_process import free_port, own_launch, running
from surefoot.bench.harness.tables import figures, notes
from surefoot.bench.harness.timing import Case, EngineError, Interleaver, Label, TimeBudget, ratios
from surefoot.bench.harness.workloads import Task, mixed, num_tokens
from surefoot.bench.serve.report import streams_table
from surefoot.bench.serve.run import CONTEXT, NUM_STREAMS, server_options

KV_BYTES = 600 << 20


@dataclass(frozen=True)
class StreamSettings:
    """How much to measure."""

    seconds: float = 180  # for the run, without loading
    rounds: int = 3


QUICK = StreamSettings(seconds=30, rounds=2)


def run_streams(
    model: str, settings: StreamSettings, variant: str | None, threads: int | None, say: Say
) -> BenchResults:
    def open_model() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=CONTEXT, max_running=NUM_STREAMS, kv_bytes=KV_BYTES
        )

    loaded, port = load_model(model, open_model, say), free_port()
    load = EngineLoad(loaded.llm)
    speed = load.speed()
    size = load.scale(
        settings.seconds / (2 * (settings.rounds + 1)), 6200 * speed.token_s + 260 * speed.step_s, 384
    )  # fmt: skip

    def tasks() -> list[Task]:
        return mixed(NUM_STREAMS, load.vocab, load.seed(), size)

    def case(name: str, run: Callable[[], float]) -> Case:
        labels: dict[str, Label] = {"way": name, "tokens": num_tokens(tasks())}
        return Case(f"{name}/{NUM_STREAMS}", "streams", run, labels=labels)

    say("starting the server")
    with running(own_launch(model, port, *server_options(variant, threads)), port) as server:
        cases = [
            case("bare", lambda: load.run(tasks())),
            case("served", lambda: streams_s(server.endpoint(), tasks())),
        ]
        budget = TimeBudget(1.5 * settings.seconds, settings.rounds)
        interleaver = Interleaver([], budget, report=lambda *at: say(progress(*at)))
        measurements = interleaver.run(cases)
    if interleaver.failures:
        raise EngineError(f"the server failed under load: {interleaver.failures['surefoot']}")
    meaning = "output tokens/s over HTTP at 32 streams, over the bare engine's"
    question = Question(
        "served_over_bare", meaning, Target(0.95),
        lambda: ratios(*(select(measurements, "streams", way=way) for way in ("bare", "served"))),
    )  # fmt: skip
    described = loaded.described | {"scale": size}
    return BenchResults(measurements, [question.figure()], described, {}, {}, loaded.run.facts(loaded.llm.backend))


def show_streams(results: BenchResults, console: Console) -> None:
    console.print(Group(streams_table(results), figures(results), *notes(results)))
