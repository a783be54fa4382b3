"""The scheduler: turns requests into step plans, and step results into new tokens.

A request has no prefill phase and no decode phase. Each sample has tokens and a count of computed tokens, and steps
raise the count. Prompts, cached prefixes, drafts and samples that return after preemption are handled alike.
"""

import math

from surefoot.core import (
    BAND_ROWS,
    NO_STATES,
    Backlog,
    Chunk,
    Delta,
    FinishReason,
    Load,
    Output,
    Phase,
    RangeMeans,
    Request,
    SampleKey,
    SampleStatus,
    ServiceClass,
    StepCost,
    StepPlan,
    StepResult,
)
from surefoot.kv import KvManager
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.prompts import PromptBudget, PromptPlanner
from surefoot.scheduler.queue import PromptQueue
from surefoot.scheduler.requests import Limits, RequestRefused, Requests
from surefoot.scheduler.rows import PlannedStep, Preemption, RunningSamples
from surefoot.scheduler.sample import ColdBlocks, Sample, State, Users

# Makes a named tuple without its call, in half the time: every step makes two for every running sample.
make_tuple = tuple.__new__
PHASES = {State.WAITING: Phase.QUEUE, State.PREFILLING: Phase.PREFILL, State.DECODING: Phase.DECODE}


class Scheduler:
    """Plans steps. Call `add`, then `schedule` and `commit` in turn. Time is an argument; nothing reads a clock."""

    def __init__(self, config: SchedulerConfig, kv: KvManager, cold: ColdBlocks | None = None) -> None:
        self.config = config
        self.kv = kv
        self.cost = StepCost(RangeMeans(config.step_shape), config.row_context)
        self.num_steps = 0
        self._limits = Limits(config, kv)
        self._users = Users(config.user_weights)
        self._queue = PromptQueue()
        self._running = RunningSamples(config, kv, self._users, self._queue, cold)
        self._requests = Requests(kv, self._users, self._running)
        self._preemption = Preemption(config, self._running, self._queue)
        self._prompts = PromptPlanner(config, self._running, self._queue, self._preemption)
        self._cancelled: list[str] = []
        self._step: PlannedStep | None = None  # between schedule and commit

    # ---- load ----

    @property
    def num_waiting(self) -> int:
        return len(self._queue.waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def running(self) -> list[Sample]:
        return self._running.all

    @property
    def num_preemptions(self) -> int:
        return self._preemption.num_preemptions

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._cancelled)

    def load(self) -> Load:
        fullest = min(self.kv.pools, key=lambda pool: pool.num_available / pool.num_blocks)
        return Load(
            self.num_running,
            self.num_waiting,
            kv_use=1 - fullest.num_available / fullest.num_blocks,
            num_preemptions=self.num_preemptions,
            longest_step_ms=self._longest_step_ms(),
            kv_cached=fullest.num_cached / fullest.num_blocks,
        )

    def _longest_step_ms(self) -> float:
        """Of the usual target time and the fewest prompt tokens that a step takes beyond it."""
        num_decoding = len(self._running.decoding)
        return max(self.config.gap_ms, self.cost.predict_ms(num_decoding + self.config.full_chunk) or 0.0)

    def backlog(self) -> Backlog:
        """O(samples with prompt tokens to compute)."""
        num_rows = self.config.full_chunk
        token_ms = (self.cost.predict_ms(num_rows) or 0.0) / num_rows
        return Backlog(sum(sample.num_left for sample in self._queue), token_ms)

    def statuses(self) -> list[SampleStatus]:
        """Where every sample stands that has not ended. Call between steps."""
        return [
            SampleStatus(sample.key, PHASES[sample.state], sample.num_computed, sample.num_cached)
            for sample in self._requests
        ]

    # ---- requests ----

    def price(self, request: Request) -> tuple[int, ...]:
        """The most blocks that the request can take, for each group of the layout."""
        return self._limits.price(request)

    def add(self, request: Request) -> None:
        """Raises RequestRefused, before anything is allocated, if the request could never run."""
        if request.id in self._requests:
            raise RequestRefused(f"there is a request {request.id!r} already: give it another id")
        if self.num_waiting >= self.config.max_waiting:
            raise RequestRefused(f"{self.num_waiting} requests are waiting: come back later")
        self._limits.check(request)
        for sample in self._requests.add(request, *self._limits.end(request)):
            self._queue.enqueue(sample)
            if self._running.is_full:
                self._running.blocks.expect(sample)

    def cancel(self, request_id: str) -> None:
        """End a request at the beginning of the next step. Does nothing if it has ended."""
        self._cancelled.append(request_id)

    def finish(self, key: SampleKey) -> None:
        """End a sample between steps, as when a stop string was found in its text."""
        sample = self._requests.find(key)
        if sample is not None:
            self._requests.end(sample)

    def preempt(self, key: SampleKey) -> None:
        """Send a running sample back to the queue, between steps."""
        if self._step is not None:
            raise RuntimeError("preempt between schedule and commit")
        sample = self._requests.find(key)
        if sample is not None and sample.state is not State.WAITING:
            self._preemption.preempt(sample)

    # ---- planning ----

    def schedule(self, now: float = 0.0) -> StepPlan:
        """Drop cancelled and overdue requests, give a token to every decoding sample, fill the rest with prompts."""
        dropped = self._drop(now)
        step = PlannedStep()
        self._plan_decoding(step)
        if self._queue:
            self._prompts.plan(step, self._budget(step.num_tokens, now))
        step.drop_preempted()
        self.num_steps += 1
        self._step = step if step.chunks else None
        return StepPlan(step.chunks, step.copies, *self._running.take_changes(), dropped)

    def _drop(self, now: float) -> list[Delta]:
        requests, reason = self._requests, FinishReason.CANCELLED
        dropped = [delta for request_id in self._cancelled for delta in requests.end_request(request_id, reason)]
        self._cancelled.clear()
        return dropped + requests.end_overdue(now)

    def _plan_decoding(self, step: PlannedStep) -> None:
        """Plan a token and the drafts of every decoding sample, except samples that are preempted meanwhile."""
        samples, chunks, num_drafts, blocks = step.samples, step.chunks, 0, self._running.blocks
        max_drafts = self._max_drafts() if any(sample.drafts for sample in self._running.decoding) else None
        for sample in list(self._running.decoding):
            if sample.drafts:
                sample.drafts = sample.drafts[:max_drafts]
            holding, tokens = sample.holding, (sample.tokens[-1],)
            start = holding.num_computed
            if start < sample.num_slots and not sample.drafts and not blocks.has_states:
                chunk = (sample.key, start, tokens, holding.tables, 1, sample.sample_numbers, NO_STATES)
                chunks.append(make_tuple(Chunk, chunk))
                samples.append(sample)
            elif self._grow_decoding(step, sample):
                drafted, num_logits = tokens + sample.drafts, 1 + len(sample.drafts)
                states = blocks.save_drafted(sample, len(sample.drafts))
                chunks.append(
                    Chunk(sample.key, start, drafted, holding.tables, num_logits, sample.sample_numbers, states)
                )
                samples.append(sample)
                num_drafts += len(sample.drafts)
        step.num_tokens = len(chunks) + num_drafts

    def _grow_decoding(self, step: PlannedStep, sample: Sample) -> bool:
        """Allocate blocks for the next token and the drafts, or for the token alone by preempting other samples."""
        if sample.state is not State.DECODING:
            return False
        sample.drafts = sample.drafts[: sample.end - len(sample.tokens) - 1]
        num_tokens, blocks, num_drafts = sample.num_computed + 1, self._running.blocks, len(sample.drafts)
        if num_drafts and blocks.may_draft(num_drafts) and blocks.grow(step, sample, num_tokens + num_drafts):
            return True
        sample.drafts = ()
        if self._preemption.grow(step, sample, num_tokens):
            return True
        self._preemption.preempt(sample, step)
        return False

    def _budget(self, num_decoding: int, now: float) -> PromptBudget:
        """The prompt tokens that keep the step within its target time, by the cost model."""
        config = self.config
        target_ms, min_tokens = self._target_ms(num_decoding)
        if (deadline := self._requests.first_deadline) is not None:
            left_ms = (deadline - now) * 1000 + config.late_ms
            target_ms, min_tokens = (left_ms, 0) if left_ms < target_ms else (target_ms, min_tokens)
        within = self.cost.tokens_within(target_ms)
        target_rows = config.first_chunk if within is None else within - num_decoding
        gap_rows = self._gap_rows(num_decoding)
        min_rows = min(config.min_chunk, max(gap_rows, 1))
        max_tokens = max(config.max_step_tokens - num_decoding, config.min_chunk)
        return PromptBudget(
            target_rows, gap_rows, min_rows, min_tokens, max_tokens, num_decoding, config.row_context
        )  # fmt: skip

    def _gap_rows(self, num_decoding: int) -> float:
        """Prompt rows beyond which neither the least chunk nor the end of a band may take a step, if interactive
        requests decode: the step would take too long for them, or `max_gap_ratio` times as long as without prompts.
        Few decoding requests count as half a band."""
        alone_ms = self.cost.predict_ms(max(num_decoding, BAND_ROWS // 2))
        if alone_ms is None or not self._decodes_interactive:
            return math.inf
        limit_ms = min(self.config.max_gap_ratio * alone_ms, self._longest_ms())
        within = self.cost.tokens_within(limit_ms)
        return math.inf if within is None else within - num_decoding

    def _longest_ms(self) -> float:
        """How long a step may take while interactive requests decode. However slow decoding is, half a band of prompt
        tokens finds room in it."""
        config, num_decoding = self.config, len(self._running.decoding)
        alone_ms = self.cost.predict_ms(num_decoding) or 0.0
        least_ms = self.cost.predict_ms(num_decoding + BAND_ROWS // 2) or 0.0
        return max(config.gap_ms, config.slow_gap_ratio * alone_ms, least_ms)

    def _max_drafts(self) -> int | None:
        """Limit on the drafts of each sample: beside other samples, drafts must not make the step too long for them,
        and half of its rows are left to prompts. None: nobody else waits for the step."""
        num_decoding, has_prompts = len(self._running.decoding), bool(self._queue)
        if not num_decoding or (not has_prompts and (num_decoding == 1 or not self._decodes_interactive)):
            return None
        within = self.cost.tokens_within(self._longest_ms())
        if within is None:
            return None
        return max(0, within // (2 if has_prompts else 1) // num_decoding - 1)

    @property
    def _decodes_interactive(self) -> bool:
        return any(sample.request.service is ServiceClass.INTERACTIVE for sample in self._running.decoding)

    def _target_ms(self, num_decoding: int) -> tuple[float, int]:
        """The step's target time in ms, and how many prompt tokens it takes even beyond that."""
        config, predict_ms = self.config, self.cost.predict_ms
        if self._decodes_interactive:
            return min(config.gap_ms, config.max_gap_ratio * (predict_ms(num_decoding) or math.inf)), 0
        is_crowd = len(self._requests) > 1 and self._queue.is_interactive
        full_ms = predict_ms(num_decoding + config.full_chunk) or 0.0
        return max(config.crowd_ms if is_crowd else config.gap_ms, full_ms), config.full_chunk

    # ---- results ----

    def commit(self, result: StepResult) -> list[Delta]:
        """Advance every sample of the plan by the tokens that were computed and accepted."""
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("commit without schedule")
        if result.stopped:
            return []
        self.cost.observe(step.num_tokens, result.elapsed_ms, step.num_context_tokens)
        return self._advance(step, result)

    def _advance(self, step: PlannedStep, result: StepResult) -> list[Delta]:
        deltas: list[Delta] = []
        outputs, failed, deferred = iter(result.outputs), result.failed, result.deferred
        for sample, chunk in zip(step.samples, step.chunks, strict=True):
            _, start, tokens, _, _, samples, _ = chunk
            if failed and sample.key in failed:
                deltas += self._requests.end_request(sample.key.request, FinishReason.ERROR)
                for _ in samples:
                    next(outputs)
                continue
            if deferred and sample.key in deferred:
                for _ in samples:
                    next(outputs)
                continue
            if not samples:
                self._running.blocks.advance(sample, start + len(tokens))
                continue
            output = key, sampled, drafts = next(outputs)
            if key is not sample.key and key != sample.key:
                raise ValueError(f"the output of {key} where that of {sample.key} belongs")
            if start < sample.fast_until and len(sampled) == 1 and -1 < sampled[0] not in sample.stops:
                # Fast path of _commit_output, for nearly every token: it fills no block and is not the last.
                sample.tokens.append(sampled[0])
                sample.holding.num_computed = start + 1
                sample.drafts = drafts
                deltas.append(make_tuple(Delta, (key, sampled, None, 0)))
            else:
                self._commit_output(sample, chunk, output, [next(outputs) for _ in samples[1:]], deltas)
        if next(outputs, None) is not None:
            raise ValueError("more outputs than the plan has samples")
        return deltas

    def _commit_output(
        self, sample: Sample, chunk: Chunk, output: Output, others: list[Output], deltas: list[Delta]
    ) -> None:
        """others: outputs of the samples that it represented until now."""
        if sample.state is State.ENDED:
            return
        num_computed = chunk.start + len(chunk.tokens) - chunk.num_logits + len(output.tokens)
        accepted, reason = sample.accept(output.tokens)
        self._running.blocks.advance(sample, num_computed)
        if sample.state is State.PREFILLING:
            self._running.start_decoding(sample)
            if sample.num_answered == len(accepted):
                self._requests.begin_answer(sample)
        self._running.charge_output(sample)
        for other in others:
            self._fork(sample, other, deltas)
        sample.drafts = output.drafts
        self._emit(sample, accepted, reason, deltas)

    def _fork(self, parent: Sample, output: Output, deltas: list[Delta]) -> None:
        sample = self._requests.fork(parent, output.key.sample)
        accepted, reason = sample.accept(output.tokens)
        self._running.charge_output(sample)
        self._emit(sample, accepted, reason, deltas)

    def _emit(self, sample: Sample, tokens: tuple[int, ...], reason: FinishReason | None, deltas: list[Delta]) -> None:
        deltas.append(Delta(sample.key, tokens, reason, sample.num_cached if reason else 0))
        if reason:
            self._requests.end(sample)

    # ---- checks ----

    def audit(self) -> None:
        """Check that queues and rows match the samples' states, and that blocks add up. For tests: O(samples)."""
        self.kv.audit()
        samples = list(self._requests)
        assert {sample for sample in samples if sample.state is State.WAITING} == set(self._queue.waiting)
        assert {sample for sample in samples if sample.state is not State.DECODING} == set(self._queue)
        self._running.audit(samples)
        self._users.audit([sample.user for sample in samples])
        for sample in samples:
            self._audit_sample(sample)

    def _audit_sample(self, sample: Sample) -> None:
        holding, size = sample.holding, self.kv.layout.block_size
        assert holding.num_computed < len(sample.tokens) <= sample.end
        assert sample.num_slots <= holding.num_blocks * size
        assert sample.state is not State.DECODING or sample.num_left == 1
        assert sample.state is not State.WAITING or holding.num_blocks == 0
