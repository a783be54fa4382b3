"""A thread beside the engine's that computes the masks of grammars, so that no request's grammar delays a step.

There is one thread for all grammars: copies of a grammar share a lexer behind a lock, so two threads would wait for
each other, one of them perhaps while holding Python's own lock.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from llguidance import LLMatcher

from surefoot.sampling.cpu_clock import Clock

SLICE_S = 0.005  # that a job runs before others get a turn
REST = 3.0  # times as long as it ran, that a job which yields leaves the processor to steps
MOST_REST_S = 0.25
IDLE_S = 5.0  # without work, after which the thread ends; the next job starts another
STUCK_S = 30.0  # after which a piece of work counts as stuck: limits on counts of work stop it long before
MOST_STUCK = 4  # stuck threads, at which no more are started


@dataclass(frozen=True)
class WorkerTools:
    """What belongs to one thread of the worker."""

    consume: Callable[[LLMatcher, int], object]  # gives a matcher its next token, without Python's lock
    cpu_seconds: Clock  # that the thread has used, in `consume` too


class Job(Protocol):
    """Work that is done piece by piece."""

    @property
    def spent_s(self) -> float:
        """Seconds spent so far. The job with the least goes first, so that a slow grammar waits for fast ones."""

    @property
    def yields(self) -> bool:
        """Whether its work should slow down the steps of other requests as little as possible."""

    def advance(self, tools: WorkerTools) -> bool:
        """Does one piece of the work and returns whether there is more. Raises nothing."""

    def fail(self, why: str) -> None: ...


class MaskWorker:
    """Runs jobs in a thread. Thread-safe. It owns a job from `submit` until `advance` returns that there is no more."""

    def __init__(self, make_tools: Callable[[], WorkerTools], stuck_s: float = STUCK_S) -> None:
        """Each thread calls `make_tools` for tools of its own."""
        self._make_tools = make_tools
        self._stuck_s = stuck_s
        self._condition = threading.Condition()
        self._queue: list[tuple[bool, float, int, Job]] = []  # a heap; jobs that yield come last
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._piece: tuple[Job, float] | None = None  # the job being worked on, and since when
        self._num_stuck = 0
        self._rest_until = 0.0  # of jobs that yield

    @property
    def is_lost(self) -> bool:
        """Whether too many threads are stuck: none takes new work until one of them returns."""
        return self._num_stuck >= MOST_STUCK

    def submit(self, job: Job) -> None:
        with self._condition:
            heappush(self._queue, (job.yields, job.spent_s, next(self._numbers), job))
            self._condition.notify()
            self._start()

    def replace_stuck(self) -> None:
        """Fails a job whose current piece is stuck, and starts another thread. Called by threads that wait for a
        job."""
        with self._condition:
            if self._thread is None or self._piece is None or time.monotonic() - self._piece[1] < self._stuck_s:
                return
            job, _ = self._piece
            self._thread, self._piece = None, None
            self._num_stuck += 1
            self._start()
        job.fail("one token of the grammar took too long on this machine: simplify it, or send the request again")

    def _start(self) -> None:
        if self._thread is None and self._queue and not self.is_lost:
            self._thread = threading.Thread(target=self._run, name="surefoot-grammars", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        tools = self._make_tools()
        while (job := self._next()) is not None:
            began = time.monotonic()
            more = self._advance(job, tools)
            while more and time.monotonic() < began + SLICE_S:
                more = self._advance(job, tools)
            if job.yields:
                now = time.monotonic()
                self._rest_until = now + min(MOST_REST_S, REST * (now - began))
            if more:
                self.submit(job)

    def _next(self) -> Job | None:
        """The next job; None if the thread should end."""
        with self._condition:
            if self._is_replaced():
                self._num_stuck -= 1
                self._start()
                return None
            while not self._queue or (rest_s := self._rest_s()) > 0:
                if self._queue:
                    self._condition.wait(rest_s)
                elif not self._condition.wait_for(lambda: bool(self._queue), IDLE_S):
                    self._thread = None
                    return None
            return heappop(self._queue)[-1]

    def _rest_s(self) -> float:
        """Seconds until the next job may run."""
        yielded, *_, job = self._queue[0]
        return self._rest_until - time.monotonic() if yielded and job.yields else 0.0

    def _advance(self, job: Job, tools: WorkerTools) -> bool:
        with self._condition:
            if self._is_replaced():
                return False
            self._piece = (job, time.monotonic())
        more = job.advance(tools)
        with self._condition:
            if self._is_replaced():
                return False
            self._piece = None
        return more

    def _is_replaced(self) -> bool:
        return self._thread is not threading.current_thread()
