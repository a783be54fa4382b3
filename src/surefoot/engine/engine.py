"""The engine: each step schedules, executes and commits, and returns events.

The engine handles token ids only. The reader of its events handles text and stop strings.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from surefoot.core import (
    Backlog,
    Chunk,
    Delta,
    FinishReason,
    Load,
    Request,
    SampleKey,
    SampleStatus,
    StepPlan,
    StepResult,
)
from surefoot.runner import Executed
from surefoot.sampling import TokenLogprobs
from surefoot.speculate import DraftOutcome

NOT_FINITE = "the model's numbers are not finite: its file may be damaged"


class Planner(Protocol):
    """Decides which samples run in a step, and for how many tokens."""

    @property
    def has_work(self) -> bool: ...
    def load(self) -> Load: ...
    def backlog(self) -> Backlog: ...
    def statuses(self) -> list[SampleStatus]:
        """Of all samples that have not ended."""

    def add(self, request: Request) -> None:
        """Raises ValueError if the request can never run here."""

    def cancel(self, request_id: str) -> None:
        """End a request at the beginning of the next step."""

    def finish(self, key: SampleKey) -> None:
        """End a sample now, between steps."""

    def schedule(self, now: float = 0.0) -> StepPlan: ...
    def commit(self, result: StepResult) -> list[Delta]: ...
    def audit(self) -> None:
        """Check its invariants. Raises AssertionError."""


class StepExecutor(Protocol):
    """Runs the model on a step's plan."""

    def execute(self, plan: StepPlan) -> Executed: ...
    def stop(self, stop: bool = True) -> None:
        """From any thread: end the pass under way and all later ones, until stop(False)."""

    def clear(self) -> None:
        """Forget every row."""


class LowerTier(Protocol):
    """Cached blocks outside of memory. Used between steps."""

    @property
    def is_reading(self) -> bool: ...
    @property
    def has_backlog(self) -> bool:
        """Whether blocks of the tree wait to be kept."""

    def install(self) -> None:
        """Put blocks that were read into the prefix tree."""

    def keep(self) -> None:
        """Copy blocks that are new in the prefix tree, as many as a step may."""

    def wait(self) -> None:
        """A moment, for something to have been read or written."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Times:
    """Seconds on the engine's clock."""

    arrived: float
    started: float | None = None  # when its first step was planned
    first_token: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class Usage:
    """Token counts of one sample."""

    num_prompt: int
    num_generated: int
    num_cached: int = 0  # prompt tokens that came from the prefix cache
    num_passes: int = 0  # steps that generated tokens
    num_drafted: int = 0
    num_accepted: int = 0  # drafted tokens that were accepted


@dataclass(frozen=True)
class Event:
    """New tokens of a sample. `reason`, `error`, `usage` and `times` are set when it ends."""

    key: SampleKey
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    reason: FinishReason | None = None
    error: str | None = None
    usage: Usage | None = None
    times: Times | None = None
    embedding: tuple[float, ...] | None = None  # if requested
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """If requested, with the first token: logprobs of the prompt's tokens from the second on."""

    def split(self) -> "list[Event]":
        """One event per token; the last one has the other fields."""
        tokens, logprobs = self.tokens[:-1], self.logprobs
        firsts = [Event(self.key, (token,), logprobs[index : index + 1]) for index, token in enumerate(tokens)]
        return [*firsts, replace(self, tokens=self.tokens[len(tokens) :], logprobs=logprobs[len(tokens) :])]


@dataclass
class _SampleCounters:
    """Counts of one sample that has not ended."""

    num_prompt: int
    times: Times
    num_generated: int = 0
    num_passes: int = 0
    num_drafted: int = 0
    num_accepted: int = 0

    def usage(self, num_cached: int) -> Usage:
        """num_cached: may count tokens of an output that has begun, after the prompt's."""
        cached = min(num_cached, self.num_prompt)
        return Usage(self.num_prompt, self.num_generated, cached, self.num_passes, self.num_drafted, self.num_accepted)


class Engine:
    """Runs requests step by step. Use from one thread, except for `interrupt`."""

    def __init__(
        self,
        make_planner: Callable[[], Planner],
        executor: StepExecutor,
        clock: Callable[[], float] = time.monotonic,
        tier: LowerTier | None = None,
    ) -> None:
        self._make_planner = make_planner
        self._planner = make_planner()
        self._executor = executor
        self._clock = clock
        self._tier = tier
        self._counters: dict[SampleKey, _SampleCounters] = {}
        self._num_open: dict[str, int] = {}  # samples of a request that have not ended
        self._errors: dict[str, str] = {}  # requests that failed and have not ended yet
        self._dominant_request = ""  # has at least half of the tokens of the step under way
        self.last_step_ms = 0.0
        self.last_step_tokens = 0
        self.last_chunks: Sequence[Chunk] = ()

    @property
    def planner(self) -> Planner:
        """For callers that inspect it; another object after a reset."""
        return self._planner

    @property
    def has_work(self) -> bool:
        return self._planner.has_work

    def load(self) -> Load:
        return self._planner.load()

    def backlog(self) -> Backlog:
        return self._planner.backlog()

    def statuses(self) -> list[tuple[SampleStatus, Times]]:
        """Where every sample stands, and since when. Call between steps."""
        return [(status, self._counters[status.key].times) for status in self._planner.statuses()]

    def add(self, request: Request) -> None:
        """Raises ValueError if the request can never run here."""
        self._planner.add(request)
        times = Times(self._clock())
        self._num_open[request.id] = request.params.n
        for number in range(request.params.n):
            num_begun = len(request.begun[number]) if request.begun else 0
            counters = _SampleCounters(len(request.prompt), times, num_generated=num_begun)
            self._counters[SampleKey(request.id, number)] = counters

    def abort(self, request_id: str) -> None:
        """End a request at the next step. Does nothing if it has ended."""
        if request_id in self._num_open:
            self._planner.cancel(request_id)

    def interrupt(self, request_id: str) -> None:
        """From any thread, after the request's abort was sent: end the step under way if this request dominates it.

        Other requests of the step lose no more time than this request would have taken.
        """
        if request_id == self._dominant_request:
            self._executor.stop()

    def resume(self) -> None:
        """Allow steps again. Call before aborts are handled, so that no interruption is lost."""
        self._executor.stop(False)

    def finish(self, key: SampleKey) -> Event | None:
        """End a sample between steps because its text is complete. Returns its last event; None if it has ended."""
        if key not in self._counters:
            return None
        self._planner.finish(key)
        return self._event(Delta(key, (), FinishReason.STOP), ())

    def withdraw(self, request: Request) -> None:
        """Remove a request between steps, without events."""
        for number in range(request.params.n):
            self.finish(SampleKey(request.id, number))

    def step(self) -> list[Event]:
        if self._tier is not None:
            self._tier.install()
        events = self._step()
        if self._tier is not None:
            self._tier.keep()
            if self._tier.is_reading and not self.last_step_tokens:
                self._tier.wait()
        return events

    def keep_blocks(self) -> bool:
        """Between requests: copy blocks that wait to be kept. Returns whether there are more."""
        if self._tier is None or not self._tier.has_backlog:
            return False
        self._tier.wait()
        self._tier.keep()
        return self._tier.has_backlog

    def close(self) -> None:
        """Write the blocks that are to be kept. No step may follow."""
        if self._tier is not None:
            self._tier.close()

    def _step(self) -> list[Event]:
        plan = self._planner.schedule(self._clock())
        self._note_starts(plan)
        self._dominant_request = _dominant_request(plan)
        executed = self._executor.execute(plan)
        self._dominant_request = ""
        self.last_step_ms = executed.result.elapsed_ms
        self.last_step_tokens = plan.num_tokens
        self.last_chunks = plan.chunks
        self._errors |= executed.failures
        self._note_drafts(executed.verified)
        deltas = self._planner.commit(executed.result) if plan.chunks else []
        events = [self._event(delta, ()) for delta in plan.dropped if delta.key in self._counters]
        events += [self._event(delta, executed.logprobs.get(delta.key, ())) for delta in deltas]
        if executed.embeddings or executed.prompt_logprobs:
            return [_with_prompt_results(event, executed) for event in events]
        return events

    def reset(self) -> None:
        """Forget every request, for use after a step that failed halfway."""
        self._planner = self._make_planner()
        self._executor.clear()
        self._counters.clear()
        self._num_open.clear()
        self._errors.clear()

    def _note_starts(self, plan: StepPlan) -> None:
        """The first row of a request starts all its samples: until the end of the prompt, one represents all."""
        for start in plan.starts:
            counters = self._counters.get(start.key)
            if counters is None or counters.times.started is not None:
                continue
            now = self._clock()
            for number in range(start.request.params.n):
                if (sample := self._counters.get(SampleKey(start.key.request, number))) is not None:
                    sample.times = replace(sample.times, started=now)

    def _note_drafts(self, outcomes: Mapping[SampleKey, DraftOutcome]) -> None:
        for key, (num_drafted, num_accepted) in outcomes.items():
            if (counters := self._counters.get(key)) is not None:
                counters.num_drafted += num_drafted
                counters.num_accepted += num_accepted

    def _event(self, delta: Delta, logprobs: Sequence[TokenLogprobs]) -> Event:
        counters, now = self._counters[delta.key], self._clock()
        counters.num_generated += len(delta.tokens)
        counters.num_passes += bool(delta.tokens)
        if delta.tokens and counters.times.first_token is None:
            counters.times = replace(counters.times, first_token=now)
        event = Event(delta.key, delta.tokens, tuple(logprobs[: len(delta.tokens)]))
        return event if delta.reason is None else self._final_event(event, delta, now)

    def _final_event(self, event: Event, delta: Delta, now: float) -> Event:
        counters = self._counters.pop(delta.key)
        reason, error = delta.reason, self._errors.get(delta.key.request)
        if error is not None or reason is FinishReason.ERROR:
            reason, error = FinishReason.ERROR, error or NOT_FINITE
        self._close_sample(delta.key.request)
        times = replace(counters.times, ended=now)
        return replace(event, reason=reason, error=error, usage=counters.usage(delta.num_cached), times=times)

    def _close_sample(self, request_id: str) -> None:
        self._num_open[request_id] -= 1
        if not self._num_open[request_id]:
            del self._num_open[request_id]
            self._errors.pop(request_id, None)


def _with_prompt_results(event: Event, executed: Executed) -> Event:
    """The event with the embedding and the prompt's logprobs, which are complete at the end of the prompt."""
    embedding, logprobs = executed.embeddings.get(event.key), executed.prompt_logprobs.get(event.key)
    return replace(event, embedding=embedding, prompt_logprobs=logprobs)


def _dominant_request(plan: StepPlan) -> str:
    """The request with at least half of the step's tokens, and more than one token; else an empty string."""
    largest = max(plan.chunks, key=lambda chunk: len(chunk.tokens), default=None)
    if largest is None or len(largest.tokens) == 1 or 2 * len(largest.tokens) < plan.num_tokens:
        return ""
    return largest.key.request
