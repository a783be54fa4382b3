"""A load generator for the engine in this process: runs many requests at once and observes each step."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from math import ceil
from typing import Any

from surefoot.api import LLM, SamplingParams
from surefoot.bench.harness.workloads import Task, ids
from surefoot.core import Request, ServiceClass

MIN_SCALE = 1 / 16  # of the lengths of requests
FULL_STEP = 24  # decoding requests; a step with at least this many counts as a step of 32
NUM_QUIET = 12  # steps before the long prompt arrives
MAX_START_TOKENS = 128  # tokens that the first request decodes before the last request starts to decode


@dataclass(frozen=True)
class FullSteps:
    """Totals over the steps of a run in which about 32 requests decode and no prompt is prefilled."""

    seconds: float
    native_seconds: float  # spent in native code
    bytes: float  # of weights, keys and values that the steps must read


@dataclass
class Observations:
    """Observations besides the duration, one entry per run."""

    full_steps: list[FullSteps] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # 99th percentile over the median of gaps between tokens


@dataclass(frozen=True)
class EngineSpeed:
    """A rough estimate of the engine's speed on this machine."""

    token_s: float  # seconds of prefill per token
    step_s: float  # seconds of a step that decodes 8 requests


class EngineLoad:
    """Runs greedy requests of fixed length through a model's engine."""

    def __init__(self, llm: LLM) -> None:
        self.llm, self._ids, self._seeds = llm, count(), count(1)
        self.vocab = llm.config.vocab_size
        self.observed = Observations()

    def seed(self) -> int:
        """A new seed, different for each call."""
        return next(self._seeds)

    def add(self, task: Task, service: ServiceClass = ServiceClass.BATCH) -> str:
        number = f"bench {next(self._ids)}"
        params = SamplingParams(temperature=0, max_tokens=task.num_new, ignore_eos=True, seed=0)
        self.llm.engine.add(Request(number, task.prompt, params, service=service, namespace=task.namespace))
        return number

    def run(self, tasks: Sequence[Task], max_running: int | None = None) -> float:
        """Seconds for all tasks, with at most `max_running` of them at once."""
        engine, waiting, num_running = self.llm.engine, list(tasks)[::-1], 0
        start = time.perf_counter()
        while waiting or engine.has_work:
            while waiting and (max_running is None or num_running < max_running):
                self.add(waiting.pop())
                num_running += 1
            num_running -= sum(event.reason is not None for event in engine.step())
        return time.perf_counter() - start

    def run_observed(self, tasks: Sequence[Task]) -> float:
        """Same as `run`. Also records the totals of the steps in which nearly all requests decode."""
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
        self.observed.full_steps.append(FullSteps(seconds, native_seconds, nbytes))
        return time.perf_counter() - begin

    def speed(self) -> EngineSpeed:
        """The engine's speed in a short run, which also warms up."""
        self.run([Task(task.prompt, 1) for task in self._prompts(1, 64)])
        prefill = self.run([Task(task.prompt, 1) for task in self._prompts(1, 256)])
        numbers = [self.add(Task(task.prompt, 64)) for task in self._prompts(8, 16)]
        self.until_all_decode(8)
        steps = self._gaps_of(6, lambda events: False)
        self._drop(numbers)
        return EngineSpeed(prefill / 256, statistics.median(steps))

    def scale(self, seconds: float, whole_s: float, longest: int) -> float:
        """The scale of a workload's lengths at which it takes these seconds. whole_s: estimated seconds at full length.
        longest: tokens of the longest request."""
        return min(max(MIN_SCALE, seconds / whole_s), 1.0, (self.llm.max_context - 8) / longest)

    def decode_steps(self, num_requests: int, num_steps: int) -> float:
        """Seconds of `num_steps` steps that decode `num_requests` requests and prefill no prompt."""
        tasks = [Task(task.prompt, MAX_START_TOKENS + num_steps) for task in self._prompts(num_requests, 16)]
        numbers = [self.add(task) for task in tasks]
        self.until_all_decode(num_requests)
        seconds = sum(self._gaps_of(num_steps, lambda events: False))
        self._drop(numbers)
        return seconds

    def gaps(self, num_streams: int, num_prompt: int) -> float:
        """Seconds of a run in which a long prompt arrives while other requests decode.

        Records the 99th percentile of gaps during the long prompt's prefill over the median of gaps before it.
        """
        engine = self.llm.engine
        numbers = [
            self.add(Task(task.prompt, self.llm.max_context - 64), ServiceClass.INTERACTIVE)
            for task in self._prompts(num_streams, 32)
        ]
        self.until_all_decode(num_streams)
        start = time.perf_counter()
        quiet = self._gaps_of(NUM_QUIET, lambda events: False)
        (long,) = self._prompts(1, num_prompt)
        number = self.add(Task(long.prompt, 1), ServiceClass.INTERACTIVE)
        busy = self._gaps_of(10**6, lambda events: any(event.key.request == number for event in events))
        seconds = time.perf_counter() - start
        worst = sorted(busy)[ceil(0.99 * len(busy)) - 1]
        self.observed.gaps.append(worst / statistics.median(quiet))
        self._drop(numbers)
        assert not engine.has_work
        return seconds

    def _gaps_of(self, max_steps: int, is_end: Callable[[Sequence[Any]], bool]) -> list[float]:
        """Durations of at most `max_steps` steps, which are the gaps between a stream's tokens."""
        times = [time.perf_counter()]
        for _ in range(max_steps):
            events = self.llm.engine.step()
            times.append(time.perf_counter())
            if is_end(events):
                break
        return [after - before for before, after in pairwise(times)]

    def _prompts(self, num_requests: int, length: int) -> list[Task]:
        seed = self.seed()
        return [Task(ids(random.Random(f"{seed} {number}"), length, self.vocab), 1) for number in range(num_requests)]

    def until_all_decode(self, num_requests: int) -> None:
        """Steps the engine until `num_requests` new requests have a token each."""
        started: set[str] = set()
        while len(started) < num_requests:
            started |= {event.key.request for event in self.llm.engine.step() if event.tokens}

    def _drop(self, numbers: Sequence[str]) -> None:
        for number in numbers:
            self.llm.engine.abort(number)
        while self.llm.engine.has_work:
            self.llm.engine.step()
