"""Many requests at once through the engine, watched step by step."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from math import ceil
from typing import Any

from surefoot.api import LLM, SamplingParams
from surefoot.bench.workloads import Task, ids
from surefoot.core import Request, ServiceClass

FULL_STEP = 24  # requests that decode in a step that counts as one of 32
NUM_QUIET = 12  # steps before the long prompt comes


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

    def run_static(self, tasks: Sequence[Task], slots: int, drops: bool) -> float:
        """Groups of so many; the next starts when all of the last have ended. Until the longest has, every slot is
        computed, as engines that batch statically do; drops: only those that have not ended, as none of them does."""
        seconds = 0.0
        for first in range(0, len(tasks), slots):
            group = tasks[first : first + slots]
            longest = max(task.num_new for task in group)
            seconds += self.run(group if drops else [replace(task, num_new=longest) for task in group])
        return seconds

    def speed(self) -> Speed:
        """From a small run that also warms up."""
        self.run([Task(task.prompt, 1) for task in self._prompts(1, 64)])
        prefill = self.run([Task(task.prompt, 1) for task in self._prompts(1, 256)])
        numbers = [self.add(Task(task.prompt, 64)) for task in self._prompts(8, 16)]
        self.until_all_decode(8)
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
        self.until_all_decode(num_streams)
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

    def until_all_decode(self, num_requests: int) -> None:
        """Steps until each of so many new requests has a token."""
        started: set[str] = set()
        while len(started) < num_requests:
            started |= {event.key.request for event in self.llm.engine.step() if event.tokens}

    def _drop(self, numbers: Sequence[str]) -> None:
        for number in numbers:
            self.llm.engine.abort(number)
        while self.llm.engine.has_work:
            self.llm.engine.step()
