"""Users of a busy fleet in simulated time: who gets how much of it, and how soon light users' first tokens come.

The router, the schedulers and the division of weights are the real ones. A step takes as long as a simple cost model
says. One user floods: the requests are many, and alike on all servers. Steady users always have some requests, each
after a long text of the user's own, so that the router keeps a user at few servers. Light users ask now and then.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from benchmarks.fleet.simulation.timeline import Timeline
from surefoot.core import Output, Request, SampleKey, SamplingParams, StepResult
from surefoot.fleet.members import UserSpread
from surefoot.fleet.router import ReplicaReport, ReplicaRouter
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig

BLOCK = 16
TOKEN = 0  # that every answer consists of
FLOOD, STEADY, LIGHT = "flood", "steady", "light"  # kinds of users; a user's name begins with the kind


@dataclass(frozen=True)
class ShareShape:
    """Servers and users. The defaults: machines that are busy without the flood."""

    num_replicas: int = 8
    num_steady: int = 8
    num_light: int = 24
    flood_requests: int = 240  # of the one user, at any time; 0: no flood
    steady_requests: int = 12  # of each, at any time
    pause_s: float = 15.0  # of light users between two requests, on average
    own_tokens: int = 1024  # with which a steady user's prompts begin
    prompt_tokens: int = 128  # of all others, and after the user's own; half of it for light users
    answer_tokens: int = 48  # half of it for light users
    step_ms: float = 40.0  # of a step without tokens
    token_ms: float = 4.0  # for each token in it
    max_running: int = 8
    warm_up_s: float = 30.0  # that counts for nothing
    duration_s: float = 230.0
    is_divided: bool = True  # False: every server gives a user the whole weight
    is_pinned: bool = False  # steady users stay at one server each, however busy it is
    seed: int = 0


@dataclass
class ShareFigures:
    """What came of a run."""

    work: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by user, as schedulers charge
    light_first_token_s: list[float] = field(default_factory=list)

    @property
    def flood_work(self) -> float:
        return self.work.get(FLOOD, 0.0)

    @property
    def steady_work(self) -> list[float]:
        """Of each steady user, least first."""
        return sorted(work for user, work in self.work.items() if user.startswith(STEADY))

    @property
    def flood_share(self) -> float:
        """Of the work for all users who never stop asking."""
        return self.flood_work / max(1.0, self.flood_work + sum(self.steady_work))


@dataclass
class _Waiting:
    user: str
    arrived: float
    server: int
    num_prompt: int
    has_begun: bool = False


class _Server:
    """A scheduler that steps through simulated time."""

    def __init__(self, shape: ShareShape) -> None:
        config = SchedulerConfig(max_running=shape.max_running, max_context=4096)
        self.scheduler = Scheduler(config, KvManager(KvLayout(BLOCK, (KvGroup(8192),))))
        self.arrived: list[Request] = []  # during the step
        self.is_stepping = False


class ShareSimulation:
    def __init__(self, shape: ShareShape) -> None:
        self._shape = shape
        self._rng = random.Random(shape.seed)
        self._router, self._spread = ReplicaRouter(BLOCK), UserSpread()
        self._servers = [_Server(shape) for _ in range(shape.num_replicas)]
        for number, server in enumerate(self._servers):
            self._router.join(f"replica {number}")
            for power in range(10):
                server.scheduler.cost.observe(1 << power, self._step_ms(1 << power))
        self._timeline = Timeline()
        self._ids, self._texts = count(), count(10_000)
        self._waiting: dict[str, _Waiting] = {}
        self.figures = ShareFigures()

    def run(self) -> ShareFigures:
        shape = self._shape
        self._report(0.0)
        users = [FLOOD] * shape.flood_requests
        users += [f"{STEADY} {number}" for number in range(shape.num_steady)] * shape.steady_requests
        users += [f"{LIGHT} {number}" for number in range(shape.num_light)]
        for user in users:
            self._timeline.at(self._rng.uniform(0.0, 5.0), partial(self._ask, user))
        self._timeline.run(shape.duration_s)
        return self.figures

    def _step_ms(self, num_tokens: int) -> float:
        return self._shape.step_ms + self._shape.token_ms * num_tokens

    # ---- the gateway ----

    def _report(self, now: float) -> None:
        for number, server in enumerate(self._servers):
            self._router.begin_report(number)
            backlog = server.scheduler.backlog()
            self._router.report(number, ReplicaReport(backlog.num_tokens, backlog.token_ms))
        self._timeline.at(now + 1.0, self._report)

    def _ask(self, user: str, now: float) -> None:
        shape, name = self._shape, f"{next(self._ids)}"
        steady = int(user.removeprefix(STEADY)) if user.startswith(STEADY) else None
        own = () if steady is None else (1 + steady,) * shape.own_tokens
        part = 2 if user.startswith(LIGHT) else 1
        prompt = own + (next(self._texts),) * (shape.prompt_tokens // part)
        number = self._choose(steady, len(own) // BLOCK, len(prompt))
        share = self._spread.enter(user, number)
        self._waiting[name] = _Waiting(user, now, number, len(prompt))
        params = SamplingParams(max_tokens=shape.answer_tokens // part, ignore_eos=True, seed=0)
        weight = share if shape.is_divided else 1.0
        self._servers[number].arrived.append(Request(name, prompt, params, user=user, weight=weight))
        if not self._servers[number].is_stepping:
            self._step(now, self._servers[number])

    def _choose(self, steady: int | None, num_own: int, num_tokens: int) -> int:
        """The server for a request. steady: number of the steady user; None: the user is another."""
        if steady is not None and self._shape.is_pinned:
            return steady % self._shape.num_replicas
        names = [((steady or 0) << 32) + block for block in range(num_own)]
        number = self._router.choose(names, num_tokens).replica
        self._router.index.add(number, names)
        return number

    # ---- servers ----

    def _step(self, now: float, server: _Server) -> None:
        for request in server.arrived:
            server.scheduler.add(request)
        server.arrived.clear()
        server.is_stepping = server.scheduler.has_work
        if not server.is_stepping:
            return
        plan = server.scheduler.schedule(now)
        if now > self._shape.warm_up_s:
            for chunk in plan.chunks:
                waiting = self._waiting[chunk.key.request]
                self.figures.work[waiting.user] += len(chunk.tokens) if chunk.start < waiting.num_prompt else 0
        outputs = [Output(SampleKey(c.key.request, sample), (TOKEN,)) for c in plan.chunks for sample in c.samples]
        result = StepResult(outputs, self._step_ms(sum(len(chunk.tokens) for chunk in plan.chunks)))
        self._timeline.at(now + result.elapsed_ms / 1000, lambda later: self._end_step(later, server, result))

    def _end_step(self, now: float, server: _Server, result: StepResult) -> None:
        for delta in server.scheduler.commit(result):
            waiting = self._waiting[delta.key.request]
            if now > self._shape.warm_up_s:
                self.figures.work[waiting.user] += server.scheduler.config.output_cost * len(delta.tokens)
            self._note_first(now, waiting)
            if delta.reason is not None:
                self._end(now, self._waiting.pop(delta.key.request))
        self._step(now, server)

    def _note_first(self, now: float, waiting: _Waiting) -> None:
        if waiting.user.startswith(LIGHT) and not waiting.has_begun and waiting.arrived > self._shape.warm_up_s:
            self.figures.light_first_token_s.append(now - waiting.arrived)
        waiting.has_begun = True

    def _end(self, now: float, waiting: _Waiting) -> None:
        self._spread.leave(waiting.user, waiting.server)
        pause_s = self._rng.expovariate(1 / self._shape.pause_s) if waiting.user.startswith(LIGHT) else 0.0
        self._timeline.at(now + pause_s, partial(self._ask, waiting.user))
