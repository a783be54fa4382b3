"""The engine: a step is schedule, execute, commit; what came of it is told as events.

It knows token ids alone: the reader of its events handles text, and stop strings in it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from surefoot.core import Delta, FinishReason, Load, Request, SampleKey, StepPlan, StepResult
from surefoot.runner import Executed
from surefoot.sampling import TokenLogprobs
from surefoot.speculate import DraftOutcome

NOT_FINITE = "the model's numbers are not finite: its file may be damaged"


class Planner(Protocol):
    """Decides which samples run in a step, and for how many tokens."""

    @property
    def has_work(self) -> bool: ...
    def load(self) -> Load: ...
    def add(self, request: Request) -> None:
        """Raises ValueError if it can never run here."""

    def cancel(self, request_id: str) -> None:
        """End it at the next step's beginning."""

    def finish(self, key: SampleKey) -> None:
        """End a sample now, between steps."""

    def schedule(self, now: float = 0.0) -> StepPlan: ...
    def commit(self, result: StepResult) -> list[Delta]: ...
    def audit(self) -> None:
        """Check its invariants. Raises AssertionError."""


class StepExecutor(Protocol):
    def execute(self, plan: StepPlan) -> Executed: ...
    def stop(self, stop: bool = True) -> None:
        """From any thread: end the pass under way and all later ones, until stop(False)."""

    def clear(self) -> None:
        """Forget every row."""


@dataclass(frozen=True)
class Times:
    """Seconds on the engine's clock."""

    arrived: float
    started: float | None = None  # the plan of its first step
    first_token: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens of one sample."""

    num_prompt: int
    num_generated: int
    num_cached: int = 0  # prompt tokens that needed no computing
    num_passes: int = 0  # steps that the generated tokens took
    num_drafted: int = 0
    num_accepted: int = 0  # drafted tokens that were right


@dataclass(frozen=True)
class Event:
    """What a sample gained in a step. `reason` and the fields after it are set when it ends."""

    key: SampleKey
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    reason: FinishReason | None = None
    error: str | None = None
    usage: Usage | None = None
    times: Times | None = None
    embedding: tuple[float, ...] | None = None  # if it was wanted
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """With a request's first token, if they were wanted; from the prompt's second token on."""

    def split(self) -> "list[Event]":
        """One event per token; the last has all that belongs to the end."""
        tokens, logprobs = self.tokens[:-1], self.logprobs
        firsts = [Event(self.key, (token,), logprobs[place : place + 1]) for place, token in enumerate(tokens)]
        return [*firsts, replace(self, tokens=self.tokens[len(tokens) :], logprobs=logprobs[len(tokens) :])]


@dataclass
class _Account:
    """What is counted of one sample."""

    num_prompt: int
    times: Times
    num_generated: int = 0
    num_passes: int = 0
    num_drafted: int = 0
    num_accepted: int = 0

    def usage(self, num_cached: int) -> Usage:
        return Usage(
            self.num_prompt, self.num_generated, num_cached, self.num_passes, self.num_drafted, self.num_accepted
        )


class Engine:
    def __init__(
        self, make_planner: Callable[[], Planner], executor: StepExecutor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make_planner = make_planner
        self._planner = make_planner()
        self._executor = executor
        self._clock = clock
        self._accounts: dict[SampleKey, _Account] = {}
        self._num_open: dict[str, int] = {}  # samples of a request that have not ended
        self._errors: dict[str, str] = {}  # requests that failed and have not ended yet
        self._most_of_step = ""  # the request with at least half of the tokens of the step under way
        self.last_step_ms = 0.0
        self.last_step_tokens = 0

    @property
    def planner(self) -> Planner:
        """For callers that inspect it; another object after a reset."""
        return self._planner

    @property
    def has_work(self) -> bool:
        return self._planner.has_work

    def load(self) -> Load:
        return self._planner.load()

    def add(self, request: Request) -> None:
        """Raises ValueError if it can never run here."""
        self._planner.add(request)
        times = Times(self._clock())
        self._num_open[request.id] = request.params.n
        for number in range(request.params.n):
            self._accounts[SampleKey(request.id, number)] = _Account(len(request.prompt), times)

    def abort(self, request_id: str) -> None:
        """End it at the next step. Does nothing if it has ended."""
        if request_id in self._num_open:
            self._planner.cancel(request_id)

    def interrupt(self, request_id: str) -> None:
        """From any thread, after its abort was sent: end the step under way if most of it is this request's.

        Other requests in the step lose no more time than this request would have taken had it stayed.
        """
        if request_id == self._most_of_step:
            self._executor.stop()

    def resume(self) -> None:
        """Call before aborts are handled: interruptions up to here have had their effect."""
        self._executor.stop(False)

    def finish(self, key: SampleKey) -> Event | None:
        """End a sample between steps because its text is complete: its last event, unless it has ended."""
        if key not in self._accounts:
            return None
        self._planner.finish(key)
        return self._event(Delta(key, (), FinishReason.STOP), ())

    def withdraw(self, request: Request) -> None:
        """Remove it between steps, as if it had never come."""
        for number in range(request.params.n):
            self.finish(SampleKey(request.id, number))

    def step(self) -> list[Event]:
        plan = self._planner.schedule(self._clock())
        self._note_starts(plan)
        self._most_of_step = _largest(plan)
        executed = self._executor.execute(plan)
        self._most_of_step = ""
        self.last_step_ms = executed.result.elapsed_ms
        self.last_step_tokens = plan.num_tokens
        self._errors |= executed.failures
        self._note_drafts(executed.verified)
        deltas = self._planner.commit(executed.result) if plan.chunks else []
        events = [self._event(delta, ()) for delta in plan.dropped if delta.key in self._accounts]
        events += [self._event(delta, executed.logprobs.get(delta.key, ())) for delta in deltas]
        if executed.embeddings or executed.prompt_logprobs:
            return [_with_more(event, executed) for event in events]
        return events

    def reset(self) -> None:
        """Forget every request, as after a step that was interrupted halfway."""
        self._planner = self._make_planner()
        self._executor.clear()
        self._accounts.clear()
        self._num_open.clear()
        self._errors.clear()

    def _note_starts(self, plan: StepPlan) -> None:
        """The first row of a request starts all its samples: until the prompt's end one stands for all."""
        for start in plan.starts:
            account = self._accounts.get(start.key)
            if account is None or account.times.started is not None:
                continue
            now = self._clock()
            for number in range(start.request.params.n):
                if (own := self._accounts.get(SampleKey(start.key.request, number))) is not None:
                    own.times = replace(own.times, started=now)

    def _note_drafts(self, verified: Mapping[SampleKey, DraftOutcome]) -> None:
        for key, (num_drafted, num_accepted) in verified.items():
            if (account := self._accounts.get(key)) is not None:
                account.num_drafted += num_drafted
                account.num_accepted += num_accepted

    def _event(self, delta: Delta, logprobs: Sequence[TokenLogprobs]) -> Event:
        account, now = self._accounts[delta.key], self._clock()
        account.num_generated += len(delta.tokens)
        account.num_passes += bool(delta.tokens)
        if delta.tokens and account.times.first_token is None:
            account.times = replace(account.times, first_token=now)
        event = Event(delta.key, delta.tokens, tuple(logprobs[: len(delta.tokens)]))
        return event if delta.reason is None else self._last(event, delta, now)

    def _last(self, event: Event, delta: Delta, now: float) -> Event:
        account = self._accounts.pop(delta.key)
        reason, error = delta.reason, self._errors.get(delta.key.request)
        if error is not None or reason is FinishReason.ERROR:
            reason, error = FinishReason.ERROR, error or NOT_FINITE
        self._count_out(delta.key.request)
        times = replace(account.times, ended=now)
        return replace(event, reason=reason, error=error, usage=account.usage(delta.num_cached), times=times)

    def _count_out(self, request_id: str) -> None:
        self._num_open[request_id] -= 1
        if not self._num_open[request_id]:
            del self._num_open[request_id]
            self._errors.pop(request_id, None)


def _with_more(event: Event, executed: Executed) -> Event:
    """With what belongs to the prompt's end."""
    embedding, logprobs = executed.embeddings.get(event.key), executed.prompt_logprobs.get(event.key)
    return replace(event, embedding=embedding, prompt_logprobs=logprobs)


def _largest(plan: StepPlan) -> str:
    """The request with at least half of the step's tokens, and more than one."""
    largest = max(plan.chunks, key=lambda chunk: len(chunk.tokens), default=None)
    if largest is None or len(largest.tokens) == 1 or 2 * len(largest.tokens) < plan.num_tokens:
        return ""
    return largest.key.request
