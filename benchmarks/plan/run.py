"""Runs `python -m benchmarks plan`: predicts, then measures, then compares.

All predictions are made before the model is loaded, from its header and from a short measurement of the machine.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random

from benchmarks.plan.figures import Compared, plan_figures
from surefoot import machine
from surefoot.api import LLM
from surefoot.api.footprint import process_bytes
from surefoot.api.opening import OpenModel, open_model
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.figures import percentile
from surefoot.bench.harness.loaded_model import load_model
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.workloads import Task, ids
from surefoot.core import Request, SamplingParams
from surefoot.plan.machines import measure_machine
from surefoot.plan.planning import MAX_CHUNK, ModelPlanner, ServiceLevel
from surefoot.plan.simulation import LoadFigures, UserLoad
from surefoot.plan.subject import SizedModel, plan_model
from surefoot.scheduler import SchedulerConfig
from surefoot.speed.step_time import PredictedSteps

DECODE_CONTEXT = 24  # tokens of a request in the middle of a case that decodes
MEMORY = "memory, bytes"
Predicted = Mapping[str, float]


@dataclass(frozen=True)
class PlanSettings:
    """How much is measured."""

    prefills: tuple[int, ...] = (512, 2048, 8000)  # prompt lengths; those beyond the context are left out
    batches: tuple[int, ...] = (1, 8, 32)  # requests that decode at once
    users: tuple[int, ...] = (8, 32)  # requests that arrive at once
    prompt_tokens: int = 256  # of a user
    answer_tokens: int = 64
    steps: int = 8  # of a sample that decodes
    rates_seconds: float = 20.0  # to measure the machine
    seconds: float = 900.0  # to measure the cases
    float_format: str = "w8"


QUICK = PlanSettings(
    prefills=(512,), batches=(1, 8), users=(8,), prompt_tokens=64, answer_tokens=16, rates_seconds=6, seconds=25
)


def run_plan(model: str, settings: PlanSettings, variant: str | None, threads: int | None, say: Say) -> BenchResults:
    opened = open_model(model)
    sized = plan_model(opened, settings.float_format)
    bench = PlanBench(sized, settings, variant, threads)
    say("measuring the machine")
    predicted = bench.predict()
    loaded = load_model(model, lambda: bench.load(opened), say)
    measured = bench.measure(loaded.llm, say)
    cases = [Compared(name, predicted[name], seconds) for name, seconds in measured.items()]
    memory = Compared(MEMORY, predicted[MEMORY], bench.memory_bytes)
    described = loaded.described | {
        "compared": [asdict(case) for case in (*cases, memory)], "rates": bench.rates,
    }  # fmt: skip
    return BenchResults({}, plan_figures(cases, memory), described, {}, {}, loaded.run.facts(loaded.llm.backend))


class PlanBench:
    """The parts of a run, over one model."""

    def __init__(self, model: SizedModel, settings: PlanSettings, variant: str | None, threads: int | None) -> None:
        self._model = model
        self._settings = settings
        self._variant, self._threads = variant, threads
        self._context = min(max(settings.prefills) + 64, model.config.context)
        fitting = [length for length in settings.prefills if length < self._context]
        self._prefills = fitting or [self._context // 2]
        self.rates: dict[str, float] = {}
        self.memory_bytes = 0  # of the process, after its first prompt

    def predict(self) -> Predicted:
        settings, model = self._settings, self._model
        sized = measure_machine(model, self._variant, self._threads, settings.rates_seconds)
        planner = ModelPlanner(model, sized, ServiceLevel(settings.prompt_tokens, settings.answer_tokens, pause_s=0.0))
        self.rates = {
            "read_bytes_per_second": sized.rates.read_bytes_per_second,
            "int8_operations_per_second": sized.rates.int8_operations_per_second,
        }
        times = planner.times
        predicted = {prefill_name(n): planner.prefill_seconds(n) for n in self._prefills}
        predicted |= {decode_name(n): times.decode_seconds(n, DECODE_CONTEXT) for n in settings.batches}
        for num_users in settings.users:
            predicted |= _load_times(num_users, self._simulate(planner, num_users))
        return predicted | {MEMORY: float(self._memory(times))}

    def _memory(self, times: PredictedSteps) -> int:
        """Of the process after the first prompt: only what was touched counts. A long step would keep others waiting,
        so that a slow model's chunks are short."""
        length, model, config = self._prefills[0], self._model, SchedulerConfig()
        in_time = (step.tokens for step in times.shape() if step.ms <= config.gap_ms)
        chunk = min(length, MAX_CHUNK, max(config.full_chunk, *in_time, 0))
        touched = model.weight_bytes + model.activation_bytes(int(chunk)) + model.request_bytes(length)
        return process_bytes(model.config.vocab_size) + touched

    @property
    def _max_running(self) -> int:
        return max(*self._settings.batches, *self._settings.users)

    def _simulate(self, planner: ModelPlanner, num_users: int) -> LoadFigures:
        settings = self._settings
        load = UserLoad(num_users, settings.prompt_tokens, settings.answer_tokens, asks_again=False)
        return planner.simulation(load).run()

    def load(self, opened: OpenModel) -> LLM:
        settings = self._settings
        return LLM(
            opened, variant=self._variant, threads=self._threads, max_context=self._context,
            max_running=self._max_running, speculate="off", float_format=settings.float_format,
        )  # fmt: skip

    def measure(self, llm: LLM, say: Say) -> dict[str, float]:
        """The best of each case, in turns: other programs can only make a case slower. The first turn warms up."""
        load, best = EngineLoad(llm), dict[str, float]()
        end, is_first = time.monotonic() + self._settings.seconds, True
        while is_first or time.monotonic() < end:
            for name, run in self._cases(load):
                say(name)
                for part, seconds in run().items():
                    best[part] = min(best.get(part, seconds), seconds)
                self.memory_bytes = self.memory_bytes or machine.used_bytes()
            is_first = False
        return best

    def _cases(self, load: EngineLoad) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
        for length in self._prefills:
            yield f"prefill {length}", partial(self._measure_prefill, load, length)
        for batch in self._settings.batches:
            yield f"decode {batch}", partial(self._measure_decode, load, batch)
        for num_users in self._settings.users:
            yield f"{num_users} users", partial(self._measure_users, load, num_users)

    def _measure_prefill(self, load: EngineLoad, length: int) -> dict[str, float]:
        return {prefill_name(length): load.run(_tasks(load, 1, length, 1))}

    def _measure_decode(self, load: EngineLoad, batch: int) -> dict[str, float]:
        return {decode_name(batch): load.decode_steps(batch, self._settings.steps) / self._settings.steps}

    def _measure_users(self, load: EngineLoad, num_users: int) -> dict[str, float]:
        settings, engine = self._settings, load.llm.engine
        start, first = time.perf_counter(), dict[str, float]()
        for number, task in enumerate(_tasks(load, num_users, settings.prompt_tokens, settings.answer_tokens)):
            params = SamplingParams(temperature=0, max_tokens=task.num_new, ignore_eos=True, seed=0)
            engine.add(Request(f"plan {number}", task.prompt, params, user=f"{number}"))
        while engine.has_work:
            for event in engine.step():
                first.setdefault(event.key.request, time.perf_counter() - start)
        return _named(num_users, list(first.values()), time.perf_counter() - start)


def prefill_name(num_tokens: int) -> str:
    return f"prefill {num_tokens}, s"


def decode_name(num_requests: int) -> str:
    return f"decode {num_requests}, s a step"


def _tasks(load: EngineLoad, count: int, prompt_tokens: int, answer_tokens: int) -> list[Task]:
    rng = Random(load.seed())
    return [Task(ids(rng, prompt_tokens, load.vocab), answer_tokens) for _ in range(count)]


def _load_times(num_users: int, figures: LoadFigures) -> dict[str, float]:
    return _named(num_users, [answer.first_token_s for answer in figures.answers], figures.seconds)


def _named(num_users: int, first_token_s: Sequence[float], seconds: float) -> dict[str, float]:
    return {
        f"{num_users} users, TTFT p50, s": percentile(first_token_s, 0.5) or 0.0,
        f"{num_users} users, TTFT p95, s": percentile(first_token_s, 0.95) or 0.0,
        f"{num_users} users, all answers, s": seconds,
    }
