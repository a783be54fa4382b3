"""Who runs in a step and for how many tokens: from integers alone.

There is no prefill phase and no decode phase. Each sample has tokens and a count of those computed; a step gives each
some tokens so that the count chases the tokens. Prompts, cached prefixes, drafts and what was preempted are all that.
"""

import math

from surefoot.core import Delta, FinishReason, Load, Request, SampleKey, ServiceClass, StepPlan, StepResult
from surefoot.kv import KvManager
from surefoot.scheduler.budget import Budget
from surefoot.scheduler.charges import Charges
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.decoding import Decoding
from surefoot.scheduler.limits import Limits, Refused
from surefoot.scheduler.making_way import MakingWay
from surefoot.scheduler.prompts import Prompts
from surefoot.scheduler.queue import Pending
from surefoot.scheduler.requests import Requests
from surefoot.scheduler.results import Results
from surefoot.scheduler.room import Room
from surefoot.scheduler.rows import Rows
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.speed import Speed
from surefoot.scheduler.step import Step
from surefoot.scheduler.users import Users


class Scheduler:
    """add, then schedule and commit in turn. Time comes in by argument; nothing here reads a clock."""

    def __init__(self, config: SchedulerConfig, kv: KvManager) -> None:
        self.config = config
        self.kv = kv
        self.speed = Speed()
        self._limits = Limits(config, kv)
        self._users = Users(config.user_weights)
        self._charges = Charges(config.output_cost)
        self._pending = Pending()
        rows = self._rows = Rows(config.max_running, self._pending)
        room = Room(config, kv, rows)
        self._requests = Requests(kv, self._users, rows, self._charges)
        way = self._way = MakingWay(config, self._users, self._pending, rows, room, self._charges)
        self._decode = Decoding(rows, room, way)
        self._prompts = Prompts(config, kv, self._pending, rows, room, way, self._charges)
        self._results = Results(self._requests, rows, room, self._charges)
        self._prefilling, self._decoding = rows.prefilling, rows.decoding
        self._cancelled: list[str] = []
        self._num_steps = 0
        self._step: Step | None = None

    # ---- how much there is ----

    @property
    def num_waiting(self) -> int:
        return len(self._pending.turns)

    @property
    def num_running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def num_preemptions(self) -> int:
        return self._way.num_preemptions

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._cancelled)

    def load(self) -> Load:
        use = max(1 - pool.num_available / pool.num_blocks for pool in self.kv.pools)
        return Load(self.num_running, self.num_waiting, use, self.num_preemptions)

    # ---- requests ----

    def price(self, request: Request) -> tuple[int, ...]:
        """Blocks of each group that it takes at most."""
        return self._limits.price(request)

    def add(self, request: Request) -> None:
        """Raises Refused, before anything is allocated, if it could never run."""
        if request.id in self._requests:
            raise Refused(f"there is a request {request.id!r} already: give it another id")
        if self.num_waiting >= self.config.max_waiting:
            raise Refused(f"{self.num_waiting} requests are waiting: come back later")
        self._limits.check(request)
        self._pending.wait(self._requests.add(request, *self._limits.end(request)))

    def cancel(self, request_id: str) -> None:
        """End it at the next step's beginning; nothing happens if it is not there (any more)."""
        self._cancelled.append(request_id)

    def finish(self, key: SampleKey) -> None:
        """End a sample between steps, as when a stop string was found in its text."""
        sample = self._requests.find(key)
        if sample is not None:
            self._requests.end(sample)

    def preempt(self, key: SampleKey) -> None:
        """Send a running sample back to wait, between steps."""
        if self._step is not None:
            raise RuntimeError("preempt between schedule and commit")
        sample = self._requests.find(key)
        if sample is not None and sample.state is not State.WAITING:
            self._way.give_way(sample)

    # ---- steps ----

    def schedule(self, now: float = 0.0) -> StepPlan:
        """Who is cancelled or late goes; who decodes gets a token; the rest of the time is for prompts."""
        dropped = self._drop(now)
        step = Step(self._num_steps)
        self._decode.plan(step)
        if self._pending:
            self._prompts.plan(step, self._budget(step.num_tokens, now))
        step.drop_preempted()
        self._num_steps += 1
        self._step = step if step.chunks else None
        return StepPlan(step.chunks, step.copies, *self._rows.announce(), dropped)

    def _drop(self, now: float) -> list[Delta]:
        dropped = [delta for name in self._cancelled for delta in self._requests.end_all(name, FinishReason.CANCELLED)]
        self._cancelled.clear()
        return dropped + self._requests.end_late(now)

    def _budget(self, num_decoding: int, now: float) -> Budget:
        """Prompt tokens that keep the step within its time, as far as steps so far tell."""
        config = self.config
        is_read_along = any(sample.request.service is ServiceClass.INTERACTIVE for sample in self._decoding)
        target = self._gap_ms(num_decoding) if is_read_along else self._prompts_ms(num_decoding)
        least_rows = 0 if is_read_along else config.full_chunk
        if (first := self._requests.first_deadline) is not None and (first - now) * 1000 + config.late_ms < target:
            target, least_rows = (first - now) * 1000 + config.late_ms, 0
        within = self.speed.tokens_within(target)
        wanted = config.first_chunk if within is None else within - num_decoding
        room = max(config.max_step_tokens - num_decoding, config.min_chunk)
        return Budget(wanted, config.min_chunk, least_rows, room, num_decoding, config.row_context)

    def _gap_ms(self, num_decoding: int) -> float:
        """How long a step may take while somebody reads along."""
        return min(self.config.gap_ms, self.config.max_gap_ratio * (self.speed.predict_ms(num_decoding) or math.inf))

    def _prompts_ms(self, num_decoding: int) -> float:
        """How long it may take otherwise: whoever comes waits for its end."""
        is_crowd = len(self._requests) > 1 and self._pending.is_waited_for
        full_ms = self.speed.predict_ms(num_decoding + self.config.full_chunk) or 0.0
        return max(self.config.crowd_ms if is_crowd else self.config.gap_ms, full_ms)

    def commit(self, result: StepResult) -> list[Delta]:
        """Advance everyone in the plan by what was computed and accepted."""
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("commit without schedule")
        if result.stopped:
            return []
        self.speed.observe(step.num_tokens + round(step.num_before / self.config.row_context), result.elapsed_ms)
        return self._results.take(step, result)

    # ---- the books ----

    def audit(self) -> None:
        """Prove that samples are where their state says, and the blocks' books. For tests: it walks all there is."""
        self.kv.audit()
        samples = list(self._requests)
        assert {sample for sample in samples if sample.state is State.WAITING} == set(self._pending.turns)
        assert {sample for sample in samples if sample.state is not State.DECODING} == set(self._pending)
        self._rows.audit(samples)
        self._users.audit([sample.user for sample in samples])
        for sample in samples:
            self._audit_sample(sample)

    def _audit_sample(self, sample: Sample) -> None:
        holding, size = sample.holding, self.kv.layout.block_size
        assert holding.num_computed < len(sample.tokens) <= sample.end
        assert sample.room <= holding.num_blocks * size
        assert sample.state is not State.DECODING or sample.num_left == 1
        assert sample.state is not State.WAITING or holding.num_blocks == 0
