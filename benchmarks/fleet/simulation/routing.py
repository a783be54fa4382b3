"""A fleet in simulated time, for routers: who holds what, who waits, and how soon first tokens come.

A replica computes one prompt after the other. Answers that it generates meanwhile slow this down. It holds a bounded
number of blocks and drops the least recently used ones, the end of a prompt before its beginning. What a router knows
of it arrives late, as it would over a network.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from benchmarks.fleet.simulation.timeline import Timeline
from surefoot.fleet.prefix_index import PrefixIndex
from surefoot.fleet.router import ReplicaReport

SYSTEM = 1 << 62  # names of system messages' blocks begin here
MOST_BLOCKS = 1 << 20  # of one conversation


@dataclass(frozen=True)
class FleetShape:
    """Machines and users. The defaults: two cores with a model of 1.5 billion parameters."""

    num_replicas: int = 1000
    num_users: int = 100_000
    turns: int = 4  # of a conversation, on average
    duration_s: float = 600.0
    think_s: float = 60.0  # between an answer and the next question, on average
    block_size: int = 16
    replica_blocks: int = 20_000  # that a replica can hold
    token_ms: float = 5.0  # to compute a prompt token
    slowed_by: float = 0.03  # part by which each answer that is being generated slows prompts down
    answer_token_ms: float = 60.0
    system_tokens: tuple[int, ...] = (400, 200, 800, 1200, 100)  # lengths of system messages that users share
    question_tokens: int = 60  # on average
    answer_tokens: int = 150
    report_s: float = 1.0
    delay_s: float = 0.05  # of a report
    hot_share: float = 0.0  # of requests that ask about one long document, without a conversation
    hot_tokens: int = 4000
    seed: int = 0


@dataclass
class Conversation:
    """A user's tokens so far."""

    number: int
    system: int
    num_tokens: int
    names: list[int] = field(default_factory=list)

    def grow(self, num_tokens: int, shape: FleetShape) -> None:
        """Names of a conversation's blocks are its number and the block's; those of the system message are shared."""
        self.num_tokens += num_tokens
        shared = shape.system_tokens[self.system] // shape.block_size
        for block in range(len(self.names), self.num_tokens // shape.block_size):
            base = SYSTEM + self.system * MOST_BLOCKS if block < shared else self.number * MOST_BLOCKS
            self.names.append(base + block)


@dataclass(frozen=True)
class Asked:
    """A request of the trace."""

    names: Sequence[int]  # of the blocks that may be cached: the last token is always computed
    num_tokens: int
    num_answer: int
    user: int = 0


class Policy(Protocol):
    """Chooses replicas."""

    def choose(self, asked: Asked, replicas: "Sequence[SimulatedReplica]", now: float) -> int: ...


class ReportReader(Protocol):
    """Learns of replicas by their reports."""

    def begin_report(self, replica: int) -> None: ...
    def report(self, replica: int, report: ReplicaReport) -> None: ...


class SimulatedReplica:
    """One machine."""

    def __init__(self, number: int, shape: FleetShape, trees: PrefixIndex) -> None:
        """trees: of all replicas, as they are."""
        self.number = number
        self._shape = shape
        self._trees = trees
        self._held: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self.free_at = 0.0  # when the last prompt is computed
        self.num_answering = 0
        self.num_queued = 0
        self.busy_s = 0.0
        self.added: list[int] = []
        self.removed: list[int] = []

    @property
    def token_ms(self) -> float:
        return self._shape.token_ms * (1 + self._shape.slowed_by * self.num_answering)

    def num_cached(self, asked: Asked) -> int:
        """Tokens of the prompt that it holds."""
        names = asked.names
        depth = next((depth for depth, name in enumerate(names) if name not in self._held), len(names))
        return depth * self._shape.block_size

    def start(self, asked: Asked, now: float) -> tuple[float, int]:
        """When its first token comes, and how many tokens of the prompt were held."""
        num_cached = self.num_cached(asked)
        work_s = (asked.num_tokens - num_cached) * self.token_ms / 1000
        self.free_at = max(self.free_at, now) + work_s
        self.busy_s += work_s
        self.num_queued += 1
        return self.free_at, num_cached

    def backlog_tokens(self, now: float) -> int:
        return round(max(0.0, self.free_at - now) * 1000 / self.token_ms)

    def hold(self, names: Sequence[int]) -> None:
        """The last blocks are used least recently, so that they go first."""
        held = self._held
        added = [name for name in names if name not in held]
        for name in reversed(names):
            held[name] = None
            held.move_to_end(name)
        excess = max(0, len(held) - self._shape.replica_blocks)
        removed = [held.popitem(last=False)[0] for _ in range(excess)]
        self._trees.add(self.number, added)
        self._trees.remove(self.number, removed)
        self.added += added
        self.removed += removed

    def take_report(self, now: float) -> ReplicaReport:
        report = ReplicaReport(self.backlog_tokens(now), self.token_ms, self.added, self.removed)
        self.added, self.removed = [], []
        return report


@dataclass
class SimulatedFigures:
    """What came of a run."""

    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    first_token_s: list[float] = field(default_factory=list)
    num_reports: int = 0
    num_names: int = 0  # that reports carried
    num_waits_beside_idle: int = 0
    """Requests that waited for a replica though another had nothing to do. Waiting for a holder may be shorter than
    computing."""

    @property
    def hit_rate(self) -> float:
        return self.num_cached_tokens / max(1, self.num_prompt_tokens)


class Simulation:
    """Runs a trace of conversations against a policy. The same seed gives the same questions to every policy."""

    def __init__(
        self, shape: FleetShape, policy: Policy, trees: PrefixIndex, reader: ReportReader | None = None
    ) -> None:
        """trees: empty; will hold what replicas hold. reader: gets their reports."""
        self._shape = shape
        self._policy = policy
        self._reader = reader
        self._rng = random.Random(shape.seed)
        self.replicas = [SimulatedReplica(number, shape, trees) for number in range(shape.num_replicas)]
        self.figures = SimulatedFigures()
        self._timeline = Timeline()
        self._conversations = count(1)

    def run(self) -> SimulatedFigures:
        shape = self._shape
        for _ in range(shape.num_users):
            self._timeline.at(self._rng.uniform(0, shape.duration_s), self._begin)
        if self._reader is not None:
            for replica in self.replicas:
                self._ask_report(0.0, replica, self._reader)
        self._timeline.run(shape.duration_s)
        return self.figures

    # ---- reports ----

    def _ask_report(self, now: float, replica: SimulatedReplica, reader: ReportReader) -> None:
        reader.begin_report(replica.number)
        report = replica.take_report(now)
        self.figures.num_reports += 1
        self.figures.num_names += len(report.added) + len(report.removed)
        # The first reports come at once and in turn, later ones at their own pace.
        delay_s = self._shape.delay_s if now else 0.0
        next_s = self._shape.report_s if now else self._rng.uniform(0, self._shape.report_s)
        self._timeline.at(now + delay_s, lambda _: reader.report(replica.number, report))
        self._timeline.at(now + next_s, lambda later: self._ask_report(later, replica, reader))

    # ---- users ----

    def _begin(self, now: float) -> None:
        number = next(self._conversations)
        rng = random.Random(self._shape.seed * 1_000_003 + number)
        if rng.random() < self._shape.hot_share:
            self._ask_hot(now, number, rng)
            return
        system = min(int(rng.expovariate(1.0)), len(self._shape.system_tokens) - 1)
        conversation = Conversation(number, system, 0)
        conversation.grow(self._shape.system_tokens[system], self._shape)
        turns = 1 + int(rng.expovariate(1 / max(1e-9, self._shape.turns - 1)))
        self._turn(now, conversation, turns, rng)

    def _ask_hot(self, now: float, number: int, rng: random.Random) -> None:
        shape = self._shape
        names = [SYSTEM * 2 + block for block in range(shape.hot_tokens // shape.block_size)]
        question = 1 + int(rng.expovariate(1 / shape.question_tokens))
        num_answer = 1 + int(rng.expovariate(1 / shape.answer_tokens))
        self._send(now, Asked(names, shape.hot_tokens + question, num_answer, number))

    def _turn(self, now: float, conversation: Conversation, turns: int, rng: random.Random) -> None:
        shape = self._shape
        conversation.grow(1 + int(rng.expovariate(1 / shape.question_tokens)), shape)
        num_answer = 1 + int(rng.expovariate(1 / shape.answer_tokens))
        names = conversation.names[: (conversation.num_tokens - 1) // shape.block_size]
        asked = Asked(names, conversation.num_tokens, num_answer, conversation.number)
        think_s = rng.expovariate(1 / shape.think_s)

        def answered(later: float, replica: SimulatedReplica) -> None:
            conversation.grow(num_answer, shape)
            replica.hold(conversation.names)
            if turns > 1:
                self._timeline.at(later + think_s, lambda then: self._turn(then, conversation, turns - 1, rng))

        self._send(now, asked, answered)

    def _send(
        self,
        now: float,
        asked: Asked,
        answered: Callable[[float, SimulatedReplica], None] = lambda later, replica: None,
    ) -> None:
        replica = self.replicas[self._policy.choose(asked, self.replicas, now)]
        figures = self.figures
        if replica.free_at > now and any(other.free_at <= now and not other.num_answering for other in self.replicas):
            figures.num_waits_beside_idle += 1
        first, num_cached = replica.start(asked, now)
        figures.num_requests += 1
        figures.num_prompt_tokens += asked.num_tokens
        figures.num_cached_tokens += num_cached
        figures.first_token_s.append(first - now)

        def generating(later: float) -> None:
            replica.num_queued -= 1
            replica.hold(asked.names)
            replica.num_answering += 1
            self._timeline.at(later + asked.num_answer * self._shape.answer_token_ms / 1000, ended)

        def ended(later: float) -> None:
            replica.num_answering -= 1
            answered(later, replica)

        self._timeline.at(first, generating)
