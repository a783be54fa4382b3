"""Models, requests and a clock that the policy is run against, without processes."""

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from surefoot.front.residency import LoadModel, Residency, UnloadModel
from surefoot.front.resident import ModelState, ModelTraits

TICK_S = 0.1
UNLOAD_S = 0.3


@dataclass
class Request:
    model: str
    arrival: float
    seconds: float  # that it is answered for
    user: str = ""
    begun: float | None = None
    ended: float | None = None
    is_failed: bool = False


@dataclass
class Simulation:
    """Loads take each model's own time. Every step checks the rules that no step may break."""

    models: tuple[ModelTraits, ...]
    limit_bytes: int
    max_wait_s: float = 30.0
    now: float = 0.0
    num_loads: int = 0
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = Residency(self.models, self.limit_bytes, self.max_wait_s)
        self._events: list[tuple[float, int, str, object]] = []
        self._numbers = itertools.count()
        self._traits = {traits.name: traits for traits in self.models}
        self._process: dict[str, int] = {}  # the number of a model's process: events of an earlier one are void
        self.decide()

    # ---- what happens ----

    def ask(self, model: str, seconds: float = 0.01, user: str = "") -> Request:
        request = Request(model, self.now, seconds, user)
        self.requests.append(request)
        if self.policy.ask(model, self.now, user):
            self._begin(request)
        self.decide()
        return request

    def leave(self, request: Request) -> None:
        """The client gives up waiting."""
        self.policy.leave(request.model, request.arrival, request.user)
        request.is_failed = True
        self.decide()

    def crash(self, model: str) -> None:
        """The model's process ends by itself."""
        loading = self.policy.states[model] is ModelState.LOADING
        self._process[model] = next(self._numbers)
        self.policy.ended(model, self.now)
        for request in self.requests:
            if request.model == model and request.ended is None and not request.is_failed:
                if request.begun is not None:
                    self.policy.done(model, self.now, request.user)
                    request.is_failed = True
                elif loading:
                    self.policy.leave(model, request.arrival, request.user)
                    request.is_failed = True
        self.decide()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            due = self._events[0][0] if self._events else end
            self.now = min(end, max(self.now, min(due, self.now + TICK_S)))
            while self._events and self._events[0][0] <= self.now:
                _, _, what, subject = heapq.heappop(self._events)
                self._happen(what, subject)
            self.decide()

    def run_until_all_served(self) -> None:
        while any(request.ended is None and not request.is_failed for request in self.requests):
            self.advance(1.0)
            assert self.now < 10_000, "something waits for ever"

    def run_until_served(self, request: Request) -> None:
        while request.ended is None:
            self.advance(TICK_S)

    def run_clients(
        self, patterns: Mapping[str, str], pause_s: float, end: float, begin: float = 0
    ) -> dict[str, list[float]]:
        """Each user asks for the models of a pattern again and again, and pauses after each answer. Returns the waits
        of the answered requests that came after the beginning, by user."""
        models = {user: itertools.cycle(pattern) for user, pattern in patterns.items()}
        asked: dict[str, list[Request]] = {user: [] for user in patterns}
        while self.now < end:
            for user, own in asked.items():
                ended = own[-1].ended if own else -pause_s
                if ended is not None and self.now >= ended + pause_s:
                    own.append(self.ask(next(models[user]), 0.25, user))
            self.advance(TICK_S)
        return {
            user: [r.begun - r.arrival for r in own if r.begun is not None and r.arrival >= begin]
            for user, own in asked.items()
        }

    def _happen(self, what: str, subject: object) -> None:
        if isinstance(subject, Request):
            if not subject.is_failed:
                subject.ended = self.now
                self.policy.done(subject.model, self.now, subject.user)
            return
        assert isinstance(subject, tuple)
        model, process = subject
        if self._process.get(model) != process:
            return
        if what == "loaded":
            self.policy.loaded(model, self.now)
            self._release(model)
        else:
            self.policy.ended(model, self.now)

    def _release(self, model: str) -> None:
        for request in self.requests:
            if request.model == model and request.begun is None and not request.is_failed:
                self._begin(request)

    def _begin(self, request: Request) -> None:
        request.begun = self.now
        heapq.heappush(self._events, (self.now + request.seconds, next(self._numbers), "done", request))

    # ---- what the policy does ----

    def decide(self) -> None:
        busy = {name for name, resident in self.policy.residents.items() if resident.num_busy}
        for action in self.policy.decide(self.now):
            model = action.name
            if isinstance(action, LoadModel):
                self.num_loads += 1
                self._start(model, "loaded", self._traits[model].load_s)
            elif isinstance(action, UnloadModel):
                assert model not in busy, "a model that answers requests was unloaded"
                assert not self._traits[model].is_pinned, "a pinned model was unloaded"
                self._start(model, "ended", UNLOAD_S)
            else:
                self._release(model)
        self.check()

    def _start(self, model: str, what: str, seconds: float) -> None:
        number = self._process[model] = next(self._numbers)
        heapq.heappush(self._events, (self.now + seconds, number, what, (model, number)))

    def check(self) -> None:
        held = sum(
            self._traits[name].need_bytes
            for name, state in self.policy.states.items()
            if state is not ModelState.UNLOADED
        )
        assert held <= self.limit_bytes, "over the limit"
        for name, resident in self.policy.residents.items():
            waiting = [
                (r.arrival, r.user) for r in self.requests if r.model == name and r.begun is None and not r.is_failed
            ]
            assert sorted(resident.waiting) == sorted(waiting)
            assert resident.num_busy == sum(
                r.model == name and r.begun is not None and r.ended is None and not r.is_failed for r in self.requests
            )

    def longest_wait_s(self) -> float:
        return max((r.begun - r.arrival for r in self.requests if r.begun is not None), default=0.0)
