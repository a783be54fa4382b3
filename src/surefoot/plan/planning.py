"""Makes a plan: whether a model fits a machine, how fast it is for one user, and how many users it carries."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from surefoot.api.footprint import process_bytes
from surefoot.engine import BLOCK_SIZE, MemoryRequest, fit_context, workspace_bytes
from surefoot.engine.capacity import MAX_STEP_TOKENS, MEMORY_FRACTION
from surefoot.kv import KvLayout
from surefoot.plan.machines import SizedMachine, known_machines
from surefoot.plan.simulation import ENGINE_ALONE, LoadFigures, LoadSimulation, ServingCost, UserLoad
from surefoot.plan.subject import SizedModel, Subject
from surefoot.scheduler import SchedulerConfig
from surefoot.speed.step_time import ChunkLoad, PredictedSteps

MAX_CHUNK = 512  # prompt tokens of one request in a step, as served
MAX_RUNNING = 32  # answers that are generated at once, as served
SERVED_SHARE = 0.95  # of answers that must meet the service
MAX_USERS = 256  # beyond which a plan does not search
MIN_ANSWER = 2  # tokens
# The server's processor time for a streamed token. Measured on one machine (docs/design/plan.md), taken for all.
SERVED_TOKEN_S = 1.2e-4
# A number of users is carried if it is even where steps take this much longer than predicted.
SAFETY = 1.15
PRECISION = 16  # the number of users that are carried is found to one in this many


@dataclass(frozen=True)
class ServiceLevel:
    """What users ask for, and what they expect."""

    prompt_tokens: int = 1000
    answer_tokens: int = 200
    first_token_s: float = 5.0
    tokens_per_second: float = 5.0
    shared_tokens: int = 0
    pause_s: float = 30.0

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.answer_tokens

    def load(self, num_users: int) -> UserLoad:
        return UserLoad(num_users, self.prompt_tokens, self.answer_tokens, self.shared_tokens, self.pause_s)

    def is_met(self, figures: LoadFigures) -> bool:
        return self.num_missed(figures) <= (1 - SERVED_SHARE) * len(figures.answers)

    def num_missed(self, figures: LoadFigures) -> int:
        """Answers that came too late or too slowly."""
        return sum(
            answer.first_token_s > self.first_token_s or answer.tokens_per_second < self.tokens_per_second
            for answer in figures.answers
        )


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of the process, and what they leave."""

    weights: int
    workspace: int
    process: int
    request: int  # keys, values and states of one request of the service's length
    free: int  # for keys and values
    limit: int

    @property
    def num_requests(self) -> int:
        """Requests of the service's length that fit at once."""
        return max(0, self.free) // max(1, self.request)

    @property
    def fits(self) -> bool:
        return self.num_requests > 0

    def used(self, num_requests: int) -> int:
        """By the process while that many requests run."""
        return self.weights + self.workspace + self.process + num_requests * self.request


@dataclass(frozen=True)
class OneUserPlan:
    """A user alone."""

    first_token_s: float
    first_token_bound: str  # what limits it
    tokens_per_second: float
    tokens_bound: str
    of_file_limit: float | None  # share of the tokens/s at which the file's bytes could be read; None: no such file


@dataclass(frozen=True)
class LoadPlan:
    """Several users at once."""

    num_users: int
    first_token_p50_s: float
    first_token_p95_s: float
    tokens_per_second_p50: float  # of an answer
    tokens_per_second_p5: float
    total_tokens_per_second: float
    meets_service: bool


@dataclass(frozen=True)
class Expense:
    """What tokens take, while the machine is as busy as planned."""

    at: str  # the load: so many users
    tokens_per_second: float
    joules_per_token: float | None  # None: no wattage is known
    price_per_million: float | None  # of tokens, in the currency of the price; None: no price is known


@dataclass(frozen=True)
class Plan:
    """What a model will do on a machine."""

    model: str
    machine: str
    machine_source: str
    variant: str
    threads: int
    read_bytes_per_second: float
    int8_operations_per_second: float
    service: ServiceLevel
    memory: MemoryPlan
    cuts: tuple[str, ...]  # what would make it fit; none if it fits
    alone: OneUserPlan | None  # None: it does not fit
    load: LoadPlan | None  # None: no number of users was given
    num_users: int | None  # that are carried at the stated service
    users_bound: str  # what limits their number
    expense: Expense | None  # None: neither wattage nor price is known

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"fits": self.memory.fits}


class ModelPlanner:
    """Answers questions about one model on one machine."""

    def __init__(self, model: SizedModel, machine: SizedMachine, service: ServiceLevel) -> None:
        self.model = model
        self.machine = machine
        self.service = service
        self.times = PredictedSteps(model.work, machine.rates)
        self.memory = memory_plan(model, machine, service)

    def one_user(self) -> OneUserPlan:
        service, times = self.service, self.times
        context = service.prompt_tokens + service.answer_tokens // 2
        prompt = times.parts([ChunkLoad(min(MAX_CHUNK, service.prompt_tokens), service.prompt_tokens // 2)], 1)
        step = times.parts([ChunkLoad(1, context)], 1)
        bandwidth, file_bytes = self.machine.rates.read_bytes_per_second, self.model.file_bytes
        return OneUserPlan(
            self.prefill_seconds(service.prompt_tokens), prompt.bound, 1 / step.total, step.bound,
            None if file_bytes is None else file_bytes / step.total / bandwidth,
        )  # fmt: skip

    def prefill_seconds(self, num_tokens: int) -> float:
        """A prompt alone, in the chunks that the scheduler makes: a step must not take long, since another request may
        come."""
        fitting = min(num_tokens, self.model.config.context - MIN_ANSWER)
        load = UserLoad(1, fitting, MIN_ANSWER, asks_again=False)
        return self.simulation(load).run().first_token_s(1.0)

    def simulate(self, num_users: int) -> LoadFigures:
        return self.simulation(self.service.load(num_users), ServingCost(SERVED_TOKEN_S)).run()

    def load(self, num_users: int) -> LoadPlan:
        figures = self.simulate(num_users)
        return LoadPlan(
            num_users,
            figures.first_token_s(0.5),
            figures.first_token_s(0.95),
            figures.speed(0.5),
            figures.speed(0.95),
            figures.tokens_per_second,
            self.service.is_met(figures),
        )

    def num_users(self, guess: int = 1) -> int:
        """The largest number of users that are all served, at most MAX_USERS. guess: where to begin."""
        low, high = 0, max(1, guess)
        while high <= MAX_USERS and self._serves(high):
            low, high = high, 2 * high
        high = min(high, MAX_USERS + 1)
        while high - low > max(1, low // PRECISION):
            middle = (low + high) // 2
            low, high = (middle, high) if self._serves(middle) else (low, middle)
        return low

    def expense(self, load: LoadPlan | None) -> Expense | None:
        """load: None: of one user."""
        machine, speed = (
            self.machine,
            self.one_user().tokens_per_second if load is None else load.total_tokens_per_second,
        )
        if not (machine.watts or machine.price_per_hour) or not speed:
            return None
        return Expense(
            "one user" if load is None else f"{load.num_users} users",
            speed,
            machine.watts / speed if machine.watts else None,
            machine.price_per_hour / 3600 / speed * 1e6 if machine.price_per_hour else None,
        )

    def users_bound(self, num_users: int) -> str:
        """What breaks first with more users."""
        figures = self.simulate(max(2, num_users + num_users // 2 + 1))
        slow = figures.speed(SERVED_SHARE) < self.service.tokens_per_second
        if self.memory.num_requests < MAX_RUNNING and not slow:
            return "memory: prompts wait for room"
        bound = self.one_user().tokens_bound if slow else self.one_user().first_token_bound
        return f"{'tokens per second' if slow else 'time to first token'}: {bound}"

    def _serves(self, num_users: int) -> bool:
        load, service = self.service.load(num_users), self.service
        too_many = (1 - SERVED_SHARE) * max(load.num_answers, num_users)
        simulation = self.simulation(load, ServingCost(SERVED_TOKEN_S, SAFETY))
        figures = simulation.run(lambda figures: service.num_missed(figures) > too_many)
        return service.is_met(figures)

    def simulation(self, load: UserLoad, serving: ServingCost = ENGINE_ALONE) -> LoadSimulation:
        layout, config = self._limits(max(2 * self.service.length, load.prompt_tokens + load.answer_tokens))
        return LoadSimulation(self.times, config, layout, load, serving)

    def _limits(self, num_tokens: int) -> tuple[KvLayout, SchedulerConfig]:
        """As `serve` would plan them. num_tokens: that a request may have."""
        model, length = self.model, min(self.model.config.context, num_tokens)
        request = MemoryRequest(model.kv_bytes, max(0, self.memory.free), length, MAX_RUNNING, MAX_CHUNK, BLOCK_SIZE)
        layout, context = fit_context(model.config, request)
        scheduling = SchedulerConfig(
            context, MAX_RUNNING, max_chunk=MAX_CHUNK, max_step_tokens=MAX_STEP_TOKENS,
            row_context=self.times.row_context(), step_shape=self.times.shape(),
        )  # fmt: skip
        return layout, scheduling


def make_plan(
    model: SizedModel, machine: SizedMachine, service: ServiceLevel, num_users: int | None = None, search: bool = True
) -> Plan:
    """num_users: plan this many users' load too. search: find how many users are carried."""
    planner = ModelPlanner(model, machine, service)
    fits, rates = planner.memory.fits, machine.rates
    carried = planner.num_users() if search and fits else None
    load = planner.load(num_users) if num_users and fits else None
    return Plan(
        model=model.name,
        machine=machine.name,
        machine_source=machine.source,
        variant=rates.variant,
        threads=rates.threads,
        read_bytes_per_second=rates.read_bytes_per_second,
        int8_operations_per_second=rates.int8_operations_per_second,
        service=service,
        memory=planner.memory,
        cuts=() if fits else tuple(_cuts(planner)),
        alone=planner.one_user() if fits else None,
        load=load,
        num_users=carried,
        users_bound="" if carried is None else planner.users_bound(carried),
        expense=planner.expense(load or (planner.load(carried) if carried else None)) if fits else None,
    )


def compare_machines(subject: Subject, service: ServiceLevel, num_users: int | None) -> list[Plan]:
    """A plan for this many users on every known machine. Raises ValueError if their number is not given."""
    if num_users is None:
        raise ValueError("machines are compared under a load: give --users")
    machines = [entry.planned() for entry in known_machines().values()]
    return [make_plan(subject.on(each.host), each, service, num_users, search=False) for each in machines]


def memory_plan(model: SizedModel, machine: SizedMachine, service: ServiceLevel) -> MemoryPlan:
    workspace, process = workspace_bytes(model.config, MAX_RUNNING), process_bytes(model.config.vocab_size)
    left = machine.memory_bytes - model.weight_bytes - workspace - process
    request = model.request_bytes(service.length + MAX_CHUNK)
    free = int(MEMORY_FRACTION * left) - 2 * MAX_RUNNING * model.config.state_bytes
    return MemoryPlan(model.weight_bytes, workspace, process, request, free, machine.memory_bytes)


def _cuts(planner: ModelPlanner) -> Iterator[str]:
    """What would make the model fit, the smallest loss first."""
    memory, model = planner.memory, planner.model
    tokens = memory.free // max(1, model.token_bytes) - MAX_CHUNK
    if tokens >= BLOCK_SIZE:
        yield f"shorten the context to {tokens} tokens (--max-context {tokens})"
    narrow = model.in_four_bits()
    if narrow.weight_bytes < model.weight_bytes and memory_plan(narrow, planner.machine, planner.service).fits:
        yield f"take 4 bits instead of 8: {narrow.weight_bytes / 1e9:.1f} GB of weights"
    needed = (memory.request - memory.free) / MEMORY_FRACTION
    yield f"take a machine with {needed / 1e9:.1f} GB more memory, or a smaller model"
