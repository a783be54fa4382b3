"""Runs `python -m benchmarks threads`: servers with one core, one that chooses its threads and some that do not."""

from dataclasses import dataclass
from itertools import count

from rich.console import Console, Group

from benchmarks.threads.one_core import BY_ITSELF, HAND_SET, one_core_cases
from surefoot.api.opening import open_model
from surefoot.bench.harness.figures import Measurements, Question, Target, median, select
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import figures, make_table, notes, title
from surefoot.bench.harness.timing import Interleaver, TimeBudget, ratios
from surefoot.bench.harness.workloads import mixed
from surefoot.models import read_config

CONTEXT, NUM_STREAMS = 1024, 8


@dataclass(frozen=True)
class ThreadSettings:
    """How much to measure."""

    seconds: float = 150  # for the load, without starting servers
    rounds: int = 3
    scale: float = 1 / 4  # of the mixed workload's lengths


QUICK = ThreadSettings(seconds=30, rounds=1, scale=1 / 16)


def run_threads(model: str, settings: ThreadSettings, variant: str | None, say: Say) -> BenchResults:
    opened, seeds, run = open_model(model), count(1), RunFacts()
    vocab = read_config(opened.checkpoint).vocab_size
    options = ["--max-context", str(CONTEXT), *(["--variant", variant] if variant else [])]
    say("starting servers with one core")
    with one_core_cases(model, lambda: mixed(NUM_STREAMS, vocab, next(seeds), settings.scale), options) as (
        cases,
        mechanism,
    ):
        budget = TimeBudget(settings.seconds, settings.rounds)
        measurements = Interleaver([], budget, report=lambda *at: say(progress(*at))).run(cases)
    meaning = "with one core: tokens/s with the threads it chose, over the best choice"
    question = Question("one_core_of_best", meaning, Target(0.95), lambda: _of_best(measurements))
    described = {"path": opened.path.name, "one_core_by": mechanism}
    return BenchResults(measurements, [question.figure()], described, {}, {}, run.facts())


def _of_best(measurements: Measurements) -> float:
    """Speed with the number of threads that the server chose, over the speed with the best fixed number."""
    chosen = select(measurements, "one core", threads=BY_ITSELF)
    fixed = [select(measurements, "one core", threads=threads) for threads in HAND_SET]
    return min(median(ratios(by_hand, chosen)) for by_hand in fixed)


def show_threads(results: BenchResults, console: Console) -> None:
    heading = f"{results.model['path']}, limited by {results.model['one_core_by']}"
    table = make_table(heading, "threads", "best s", "median s")
    for m in results.measurements.values():
        if m.best and m.median:
            table.add_row(title(m), f"{m.best:.3f}", f"{m.median:.3f}")
    console.print(Group(table, figures(results), *notes(results)))
