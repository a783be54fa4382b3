"""Profiles a step: the time in scheduling, gathering, native code, sampling and committing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

from surefoot.api import LLM
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.workloads import Task, mixed
from surefoot.core import Backlog, Delta, Load, Request, SampleKey, SampleStatus, StepPlan, StepResult
from surefoot.engine import Engine
from surefoot.engine.engine import Planner
from surefoot.kv import KvManager
from surefoot.models import Model
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.runner import Executed, Executor, FlatStep, KvStore, Runner
from surefoot.scheduler import Scheduler

PROMPT, STEPS = 8, 16  # short prompts, so that all requests soon decode


@dataclass(frozen=True)
class StepProfile:
    """Mean seconds of a step that decodes `num_requests` requests."""

    num_requests: int
    schedule: float
    gather: float  # rows and block tables into the model's arrays
    native: float  # the model's pass
    sampling: float  # from logits to tokens
    sampling_native: float  # the part of sampling in native code
    commit: float
    events: float  # everything else, such as updating the state of each request

    @property
    def total(self) -> float:
        return self.schedule + self.gather + self.native + self.sampling + self.commit + self.events

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by name, in a step's order."""
        named = asdict(self)
        return {name: named[name] for name in ("schedule", "gather", "native", "sampling", "commit", "events")}


@dataclass
class _Clocks:
    """Total seconds so far in each part of a step."""

    schedule: float = 0.0
    execute: float = 0.0
    before_forward: float = 0.0
    forward: float = 0.0
    native: float = 0.0
    all_native: float = 0.0
    commit: float = 0.0
    step: float = 0.0
    entered: float = field(default=0.0, repr=False)  # when the executor was last called


@dataclass(frozen=True)
class _TimedPlanner:
    """A planner that adds its durations to `clocks`."""

    inner: Planner
    clocks: _Clocks

    @property
    def has_work(self) -> bool:
        return self.inner.has_work

    def backlog(self) -> Backlog:
        return self.inner.backlog()

    def load(self) -> Load:
        return self.inner.load()

    def statuses(self) -> list[SampleStatus]:
        return self.inner.statuses()

    def add(self, request: Request) -> None:
        self.inner.add(request)

    def cancel(self, request_id: str) -> None:
        self.inner.cancel(request_id)

    def finish(self, key: SampleKey) -> None:
        self.inner.finish(key)

    def schedule(self, now: float = 0.0) -> StepPlan:
        start = time.perf_counter()
        plan = self.inner.schedule(now)
        self.clocks.schedule += time.perf_counter() - start
        return plan

    def audit(self) -> None:
        self.inner.audit()

    def commit(self, result: StepResult) -> list[Delta]:
        start = time.perf_counter()
        deltas = self.inner.commit(result)
        self.clocks.commit += time.perf_counter() - start
        return deltas


@dataclass(frozen=True)
class _TimedRunner:
    """A runner that adds its durations to `clocks`."""

    inner: Runner
    clocks: _Clocks

    @property
    def backend(self) -> Backend:
        return self.inner.backend

    @property
    def model(self) -> Model:
        return self.inner.model

    @property
    def kv(self) -> KvStore:
        return self.inner.kv

    @property
    def max_chunk(self) -> int:
        return self.inner.max_chunk

    def hidden(self, num_rows: int) -> F32:
        return self.inner.hidden(num_rows)

    def normed(self, first: int, count: int) -> F32:
        return self.inner.normed(first, count)

    def logits(self, first: int, count: int) -> F32:
        return self.inner.logits(first, count)

    def forward(self, step: FlatStep) -> F32:
        start, native = time.perf_counter(), self.backend.native_seconds
        self.clocks.before_forward += start - self.clocks.entered
        logits = self.inner.forward(step)
        self.clocks.forward += time.perf_counter() - start
        self.clocks.native += self.backend.native_seconds - native
        return logits


@dataclass(frozen=True)
class _TimedExecutor:
    """An executor that adds its durations to `clocks`."""

    inner: Executor
    clocks: _Clocks

    def execute(self, plan: StepPlan) -> Executed:
        start = self.clocks.entered = time.perf_counter()
        executed = self.inner.execute(plan)
        self.clocks.execute += time.perf_counter() - start
        return executed

    def stop(self, stop: bool = True) -> None:
        self.inner.stop(stop)

    def clear(self) -> None:
        self.inner.clear()


def profile_steps(llm: LLM, num_requests: int) -> StepProfile:
    """Profiles a separate engine over the model's memory. The model's own engine loses its cache."""
    clocks = _Clocks()
    with _timed_engine(llm, clocks):
        load = EngineLoad(llm)
        for task in mixed(num_requests, load.vocab, load.seed()):
            load.add(Task(task.prompt[:PROMPT], STEPS + num_requests))
        load.until_all_decode(num_requests)
        vars(clocks).update(vars(_Clocks()))
        native, start = llm.backend.native_seconds, time.perf_counter()
        for _ in range(STEPS):
            llm.engine.step()
        clocks.step = time.perf_counter() - start
        clocks.all_native = llm.backend.native_seconds - native
    return _profile(clocks, num_requests)


def _profile(clocks: _Clocks, num_requests: int) -> StepProfile:
    return StepProfile(
        num_requests,
        schedule=clocks.schedule / STEPS,
        gather=(clocks.before_forward + clocks.forward - clocks.native) / STEPS,
        native=clocks.native / STEPS,
        sampling=(clocks.execute - clocks.before_forward - clocks.forward) / STEPS,
        sampling_native=(clocks.all_native - clocks.native) / STEPS,
        commit=clocks.commit / STEPS,
        events=(clocks.step - clocks.schedule - clocks.execute - clocks.commit) / STEPS,
    )


@contextmanager
def _timed_engine(llm: LLM, clocks: _Clocks) -> Iterator[None]:
    """Replaces the model's engine by a timed one during the block."""
    engine = llm.engine
    executor = _TimedExecutor(Executor(_TimedRunner(llm.runner, clocks), llm.grammars), clocks)
    llm.engine = Engine(partial(_timed_planner, llm, clocks), executor)
    try:
        yield
    finally:
        llm.engine = engine
        engine.reset()


def _timed_planner(llm: LLM, clocks: _Clocks) -> Planner:
    return _TimedPlanner(Scheduler(llm.capacity.scheduling, KvManager(llm.capacity.layout)), clocks)
