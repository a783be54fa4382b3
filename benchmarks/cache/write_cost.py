"""What keeping blocks costs many users.

They all decode, and every other window of steps writes. What writing costs is compared between neighbouring windows,
within a second or so: whole runs, one after the other, differ by more from each other.
"""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.cache.sessions import CacheSession
from surefoot.api import LLM, SamplingParams
from surefoot.bench.harness.figures import percentile
from surefoot.bench.harness.workloads import ids
from surefoot.core import Request

LEAST_PAIRS = 4
LEAST_PROMPT = 16  # tokens; lengths differ by up to a block, so that blocks are not all full at the same step


@dataclass
class Windows:
    """Times of the windows of one kind."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)  # of the process
    step_seconds: list[float] = field(default_factory=list)

    @property
    def gap_p99(self) -> float:
        return percentile(self.step_seconds, 0.99) or float("inf")


@dataclass(frozen=True)
class WriteCost:
    """Neighbouring windows, with writing and without. Those with it also write the blocks of those without."""

    writing: Windows
    plain: Windows
    num_tokens: int  # that were decoded
    write_cpu_s: float  # that went into copying and writing

    @property
    def overhead(self) -> float:
        """Part of the time by which writing lengthens the whole."""
        return _growth(self.writing.seconds, self.plain.seconds)

    @property
    def cpu_overhead(self) -> float:
        return _growth(self.writing.cpu_seconds, self.plain.cpu_seconds)

    @property
    def cpu_share(self) -> float:
        """Of the processor time of all windows, what went into copying and writing."""
        return self.write_cpu_s / sum(self.writing.cpu_seconds + self.plain.cpu_seconds)

    @property
    def gap_growth(self) -> float:
        """Of the 99th percentile: windows that write twice their blocks beside windows that write none."""
        return self.writing.gap_p99 / self.plain.gap_p99 - 1


def _growth(writing: list[float], plain: list[float]) -> float:
    """The median of the pairs; half of it, since a window writes the blocks of two."""
    return statistics.median([(a - b) / (2 * b) for a, b in zip(writing, plain, strict=True)])


def measure_write_cost(session: CacheSession, llm: LLM, num_users: int, seconds: float) -> WriteCost:
    window = llm.capacity.layout.block_size  # steps until each request has filled a block
    most_pairs = (llm.max_context - LEAST_PROMPT - 4 * window) // (2 * window)
    _start(session, llm, num_users, (2 * most_pairs + 2) * window)
    times, num_pairs, end = {True: Windows(), False: Windows()}, 0, time.perf_counter() + seconds
    while num_pairs < most_pairs and (num_pairs < LEAST_PAIRS or time.perf_counter() < end):
        for is_writing in (True, False) if num_pairs % 2 else (False, True):
            session.switch.is_on = is_writing
            _add_window(times[is_writing], window, session.engine.step)
        num_pairs += 1
    session.switch.is_on = True
    session.finish_writing()
    return WriteCost(times[True], times[False], 2 * num_pairs * window * num_users, session.tier.write_cpu_s)


def _start(session: CacheSession, llm: LLM, num_users: int, num_new: int) -> None:
    """Requests that all decode."""
    rng, engine, started = random.Random(3), session.engine, set[str]()
    params = SamplingParams(temperature=0, max_tokens=num_new, ignore_eos=True, seed=0)
    for number in range(num_users):
        num_prompt = LEAST_PROMPT + rng.randrange(llm.capacity.layout.block_size)
        engine.add(Request(f"user {number}", ids(rng, num_prompt, llm.config.vocab_size), params))
    while len(started) < num_users:
        started |= {event.key.request for event in engine.step() if event.tokens}


def _add_window(times: Windows, num_steps: int, step: Callable[[], object]) -> None:
    cpu_start, marks = time.process_time(), [time.perf_counter()]
    for _ in range(num_steps):
        step()
        marks.append(time.perf_counter())
    times.seconds.append(marks[-1] - marks[0])
    times.cpu_seconds.append(time.process_time() - cpu_start)
    times.step_seconds += [after - before for before, after in pairwise(marks)]
