"""`surefoot bench engine`: many requests at once through the whole engine, beside the limit and lesser ways."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from math import ceil
from typing import Any

from surefoot.api import LLM, SamplingParams
from surefoot.api.loading import Room
from surefoot.bench.disturbance import usage
from surefoot.bench.facts import facts_of_run, machine_facts, progress
from surefoot.bench.figures import Measurements, MissingError, Question, Target, median, select
from surefoot.bench.limits import gauges
from surefoot.bench.model_results import ModelResults, describe_model
from surefoot.bench.timing import BANDWIDTH, Budget, Case, Interleaver, Label, Sample, ratios
from surefoot.bench.workloads import Task, ids, log_uniform, mixed, num_tokens, scaled, shared_prefix
from surefoot.core import Output, Request, ServiceClass, StepResult
from surefoot.kv import KvManager
from surefoot.scheduler import Scheduler

Say = Callable[[str], None]

MIB = 1 << 20
LEAST_SCALE = 1 / 16
FULL_STEP = 24  # requests that decode in a step that counts as one of 32
STATIC_SLOTS, NUM_QUEUED, NUM_STREAMS, NUM_SHARING = 8, 64, 8, 32
LONG_PROMPT = 8192
NUM_QUIET = 12  # steps before the long prompt comes
PEERS = ("llamacpp", "openvino", "vllm")
NO_PEER = "peers take no part in this run"


@dataclass(frozen=True)
class EngineSettings:
    """seconds: for the cases, loading not counted. Lengths are chosen so that the rounds fit into them."""

    seconds: float = 300
    rounds: int = 3
    kv_bytes: int = 1200 * MIB
    footprint_bytes: int = 1024 * MIB


QUICK = EngineSettings(seconds=34, rounds=1, footprint_bytes=512 * MIB)


@dataclass(frozen=True)
class FullSteps:
    """Steps of one run in which some 32 requests decode and nothing else happens, together."""

    seconds: float
    native_seconds: float
    bytes: float  # that must be read


@dataclass
class Seen:
    """What the cases see besides their time, run by run."""

    full_steps: list[FullSteps] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # the worst hundredth over the median


@dataclass(frozen=True)
class Speed:
    """token_s: of a prompt. step_s: a step that decodes 8 requests."""

    token_s: float
    step_s: float


class Crowd:
    """Many requests, greedy, of fixed length."""

    def __init__(self, llm: LLM) -> None:
        self.llm, self._ids, self._seeds = llm, count(), count(1)
        self.vocab = llm.config.vocab_size
        self.seen = Seen()

    def seed(self) -> int:
        """Another for each run."""
        return next(self._seeds)

    def add(self, task: Task, service: ServiceClass = ServiceClass.BATCH) -> str:
        number = f"bench {next(self._ids)}"
        params = SamplingParams(temperature=0, max_tokens=task.num_new, ignore_eos=True, seed=0)
        self.llm.engine.add(Request(number, task.prompt, params, service=service, namespace=task.namespace))
        return number

    def run(self, tasks: Sequence[Task], most: int | None = None) -> float:
        """Seconds for all of them, at most so many at once."""
        engine, waiting, num_running = self.llm.engine, list(tasks)[::-1], 0
        start = time.perf_counter()
        while waiting or engine.has_work:
            while waiting and (most is None or num_running < most):
                self.add(waiting.pop())
                num_running += 1
            num_running -= sum(event.reason is not None for event in engine.step())
        return time.perf_counter() - start

    def run_watched(self, tasks: Sequence[Task]) -> float:
        """As run, with the steps in which nearly all decode kept by themselves."""
        engine, backend = self.llm.engine, self.llm.backend
        lengths = {self.add(task): len(task.prompt) for task in tasks}
        weights, slot = self.llm.read_bytes(0), self.llm.read_bytes(1) - self.llm.read_bytes(0)
        seconds = native_seconds = nbytes = 0.0
        begin = time.perf_counter()
        while engine.has_work:
            start, native = time.perf_counter(), backend.native_seconds
            events = engine.step()
            if engine.last_step_tokens == len(events) >= min(FULL_STEP, len(tasks)):
                seconds += time.perf_counter() - start
                native_seconds += backend.native_seconds - native
                nbytes += weights + slot * sum(lengths[event.key.request] for event in events)
            for event in events:
                lengths[event.key.request] += len(event.tokens)
        self.seen.full_steps.append(FullSteps(seconds, native_seconds, nbytes))
        return time.perf_counter() - begin

    def run_static(self, tasks: Sequence[Task], slots: int) -> float:
        """Groups of so many; the next starts when all of the last have ended."""
        return sum(self.run(tasks[first : first + slots]) for first in range(0, len(tasks), slots))

    def speed(self) -> Speed:
        """From a small run that also warms up."""
        self.run([Task(task.prompt, 1) for task in self._prompts(1, 64)])
        prefill = self.run([Task(task.prompt, 1) for task in self._prompts(1, 256)])
        numbers = [self.add(Task(task.prompt, 64)) for task in self._prompts(8, 16)]
        self._until_all_decode(8)
        steps = self._gaps_of(6, lambda events: False)
        self._drop(numbers)
        return Speed(prefill / 256, statistics.median(steps))

    def gaps(self, num_streams: int, num_prompt: int) -> float:
        """A long prompt arrives while others are read along. Gaps of quiet steps give the median, those while the
        prompt is computed the worst hundredth."""
        engine = self.llm.engine
        numbers = [
            self.add(Task(task.prompt, self.llm.max_context - 64), ServiceClass.INTERACTIVE)
            for task in self._prompts(num_streams, 32)
        ]
        self._until_all_decode(num_streams)
        start = time.perf_counter()
        quiet = self._gaps_of(NUM_QUIET, lambda events: False)
        (long,) = self._prompts(1, num_prompt)
        number = self.add(Task(long.prompt, 1), ServiceClass.INTERACTIVE)
        busy = self._gaps_of(10**6, lambda events: any(event.key.request == number for event in events))
        seconds = time.perf_counter() - start
        worst = sorted(busy)[ceil(0.99 * len(busy)) - 1]
        self.seen.gaps.append(worst / statistics.median(quiet))
        self._drop(numbers)
        assert not engine.has_work
        return seconds

    def _gaps_of(self, most: int, is_end: Callable[[Sequence[Any]], bool]) -> list[float]:
        """Times between the ends of steps: each brings every stream a token."""
        times = [time.perf_counter()]
        for _ in range(most):
            events = self.llm.engine.step()
            times.append(time.perf_counter())
            if is_end(events):
                break
        return [after - before for before, after in pairwise(times)]

    def _prompts(self, num_requests: int, length: int) -> list[Task]:
        seed = self.seed()
        return [Task(ids(random.Random(f"{seed} {number}"), length, self.vocab), 1) for number in range(num_requests)]

    def _until_all_decode(self, num_requests: int) -> None:
        started: set[str] = set()
        while len(started) < num_requests:
            started |= {event.key.request for event in self.llm.engine.step() if event.tokens}

    def _drop(self, numbers: Sequence[str]) -> None:
        for number in numbers:
            self.llm.engine.abort(number)
        while self.llm.engine.has_work:
            self.llm.engine.step()


def kv_waste(room: Room, vocab: int) -> float:
    """Slots that are held and hold no token, over all steps of the mixed workload. A matter of lengths alone: no model
    is run, and steps take what they might."""
    scheduler = Scheduler(room.scheduling, KvManager(room.layout))
    for number, task in enumerate(mixed(32, vocab, 0)):
        scheduler.add(Request(f"{number}", task.prompt, SamplingParams(max_tokens=task.num_new, ignore_eos=True)))
    unused = held = 0
    while scheduler.has_work:
        plan = scheduler.schedule()
        outputs = [Output(chunk.key, (0,)) for chunk in plan.chunks if chunk.samples]
        scheduler.commit(StepResult(outputs, 10 + 0.5 * plan.num_tokens))
        usages = scheduler.kv.usage()
        unused += sum(one.unused_slots for one in usages)
        held += sum(one.num_held for one in usages) * room.layout.block_size
    return unused / held


def run_engine(
    model: str, settings: EngineSettings, variant: str | None, threads: int | None, say: Say
) -> ModelResults:
    say("loading")
    start = time.perf_counter()
    llm = LLM(
        model, variant=variant, threads=threads, max_context=LONG_PROMPT + 128, max_running=32,
        kv_bytes=settings.kv_bytes, speculate="off",
    )  # fmt: skip
    load_seconds = time.perf_counter() - start
    gc.collect()
    gc.freeze()
    begin, before = time.perf_counter(), usage()
    facts, crowd = machine_facts(llm.backend), Crowd(llm)
    say("finding how much fits into the time")
    cases = list(_cases(crowd, crowd.speed(), settings.seconds / settings.rounds))
    left = settings.seconds - (time.perf_counter() - begin)
    # What found the speeds has warmed up: with one round, the first counts.
    budget = Budget(left, rounds=settings.rounds - 1)
    limits = gauges(llm.backend, settings.footprint_bytes)
    interleaver = Interleaver(limits, budget, report=lambda *at: say(progress(*at)))
    measurements = interleaver.run(cases)
    described = describe_model(model, llm, load_seconds) | {
        "scales": {case.name: case.labels["percent"] / 100 for case in cases},  # type: ignore[operator]
        "block_size": llm.room.layout.block_size,
        "kv_bytes": llm.room.layout.total_bytes,
    }
    absent = dict.fromkeys(PEERS, NO_PEER)
    figures = [question.figure() for question in _questions(measurements, crowd, absent)]
    return ModelResults(measurements, figures, described, {}, absent, facts | facts_of_run(before, begin))


def _cases(crowd: Crowd, speed: Speed, seconds: float) -> Iterator[Case]:
    """Each with lengths that fit into its share of the time; what does not fit after all is left out."""
    llm, vocab, token, step = crowd.llm, crowd.vocab, speed.token_s, speed.step_s

    def scale(share: float, whole_s: float, longest: int) -> float:
        """whole_s: what the case takes at full length, by the speeds of prompts and of steps. longest: its tokens."""
        return min(max(LEAST_SCALE, share * seconds / whole_s), 1.0, (llm.max_context - 8) / longest)

    def case(name: str, kind: str, size: float, run: Callable[[], float], **labels: Label) -> Case:
        return Case(name, kind, run, labels={**labels, "percent": round(100 * size)})

    for users, share, whole in ((32, 0.20, 6200 * token + 260 * step), (8, 0.06, 1600 * token + 130 * step)):
        size = scale(share, whole, 384)
        run, tokens = partial(_mix, crowd, users, size), num_tokens(mixed(users, vocab, 0, size))
        yield case(f"mix/{users}", "mix", size, run, requests=users, tokens=tokens)
    size = scale(0.14, 3 * LONG_PROMPT * token, LONG_PROMPT)
    long = min(scaled(LONG_PROMPT, size), llm.max_context - 64)
    yield case("long prompt", "gap", size, partial(crowd.gaps, NUM_STREAMS, long), tokens=long)
    size = scale(0.38, 3000 * step, 416)
    for way in ("continuous", "static"):
        yield case(f"batching/{way}", "batching", size, partial(_queued, crowd, way == "static", size), way=way)
    size = scale(0.22, 36_000 * token + 64 * step, 1072)
    for way in ("cached", "cold"):
        yield case(f"shared prefix/{way}", "prefix", size, partial(_shared, crowd, way == "cached", size), way=way)


def _mix(crowd: Crowd, users: int, size: float) -> float:
    tasks = mixed(users, crowd.vocab, crowd.seed(), size)
    if users != 32:
        return crowd.run(tasks)
    seconds = crowd.run_watched(tasks)
    if not crowd.seen.full_steps[-1].seconds:
        # The first had ended before the last began: short prompts, so that all decode at once.
        del crowd.seen.full_steps[-1]
        crowd.run_watched([Task(task.prompt[:8], 16) for task in mixed(users, crowd.vocab, crowd.seed())])
    return seconds


def _shared(crowd: Crowd, cached: bool, size: float) -> float:
    return crowd.run(shared_prefix(NUM_SHARING, crowd.vocab, crowd.seed(), size, cached))


def _queued(crowd: Crowd, static: bool, size: float) -> float:
    num_queued = NUM_QUEUED if size > LEAST_SCALE else 3 * STATIC_SLOTS
    tasks = log_uniform(num_queued, crowd.vocab, crowd.seed(), size)
    return crowd.run_static(tasks, STATIC_SLOTS) if static else crowd.run(tasks, STATIC_SLOTS)


def _questions(found: Measurements, crowd: Crowd, absent: dict[str, str]) -> Iterator[Question]:
    seen, room = crowd.seen, crowd.llm.room

    def speed(requests: int) -> float:
        (measurement,) = select(found, "mix", requests=requests)
        return median([float(measurement.case.labels["tokens"]) / one.seconds for one in measurement.samples])

    def full_steps() -> list[tuple[FullSteps, Sample]]:
        """Of the runs that count, with the limits around them."""
        (measurement,) = select(found, "mix", requests=32)
        runs = seen.full_steps[-len(measurement.samples) :]
        return [pair for pair in zip(runs, measurement.samples, strict=True) if pair[0].seconds]

    def of_limit() -> float:
        return median([steps.bytes / sample.limits[BANDWIDTH] / steps.seconds for steps, sample in full_steps()])

    def overhead() -> float:
        return median([1 - steps.native_seconds / steps.seconds for steps, _ in full_steps()])

    def ratio(kind: str, slow: str, fast: str) -> float:
        return median(ratios(select(found, kind, way=slow), select(found, kind, way=fast)))

    def last(values: list[float]) -> float:
        """The first warmed up."""
        if not values:
            raise MissingError("not measured within the time")
        return median(values[1:] or values)

    def missing(name: str) -> float:
        raise MissingError(absent[name])

    yield Question("output_tps_8", "output tokens/s, 8 mixed requests at once", None, lambda: speed(8))
    yield Question("output_tps_32", "output tokens/s, 32 mixed requests at once", None, lambda: speed(32))
    yield Question("step_of_limit_32", "a step that decodes 32: its bytes over bandwidth", None, of_limit)
    yield Question(
        "static_batching_ratio", "continuous batching over static, 8 slots, log-uniform lengths", Target(2.0),
        lambda: ratio("batching", "static", "continuous"),
    )  # fmt: skip
    yield Question(
        "prefix_cache_ratio", "32 that share a prompt: with the prefix cache over without", Target(5.0),
        lambda: ratio("prefix", "cold", "cached"),
    )  # fmt: skip
    yield Question(
        "gap_p99_over_median", "8 streams while a long prompt comes: worst hundredth of gaps over median",
        Target(3.0, at_least=False), lambda: last(seen.gaps),
    )  # fmt: skip
    yield Question(
        "overhead_share_32", "time of a step that decodes 32 outside of native code", Target(0.10, at_least=False),
        overhead,
    )  # fmt: skip
    limit = Target(0.04, at_least=False)
    yield Question("kv_waste", "slots held that hold no token", limit, lambda: kv_waste(room, crowd.vocab))
    for name in PEERS:
        yield Question(f"vs_{name}_32", f"output tokens/s of 32 over {name}", Target(2.0), partial(missing, name))
