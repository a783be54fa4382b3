"""Who runs in a step and for how many tokens: from integers alone.

There is no prefill phase and no decode phase. Each sample has tokens and a count of those computed; a step gives each
some tokens so that the count chases the tokens. Prompts, cached prefixes, drafts and what was preempted are all that.
"""

from itertools import count

from surefoot.core import (
    Chunk,
    Delta,
    FinishReason,
    Load,
    Output,
    Request,
    RowStart,
    SampleKey,
    ServiceClass,
    StepPlan,
    StepResult,
)
from surefoot.kv import KvManager, Node
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.heap import LazyHeap
from surefoot.scheduler.queue import Pending
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.speed import Speed
from surefoot.scheduler.step import Step
from surefoot.scheduler.users import Users

# A named tuple made without its call, in half the time: there are two for every sample that runs, in every step.
make = tuple.__new__
MOST_IN_VAIN = 4  # samples that a step finds no room for before it stops looking


class Refused(ValueError):
    """The request can never run here, or the queue is full."""


class Scheduler:
    """add, then schedule and commit in turn. Time comes in by argument; nothing here reads a clock."""

    def __init__(self, config: SchedulerConfig, kv: KvManager) -> None:
        self.config = config
        self.kv = kv
        self.speed = Speed()
        self.num_preemptions = 0
        self._users = Users(config.user_weights)
        self._pending = Pending()
        self._prefilling: dict[Sample, None] = {}  # in the order of admission
        self._decoding: dict[Sample, None] = {}
        self._requests: dict[str, dict[int, Sample]] = {}  # samples that have not ended
        self._deadlines: LazyHeap[str] = LazyHeap()
        self._cancelled: list[str] = []
        self._starts: dict[SampleKey, Sample] = {}  # rows that the next plan announces
        self._ends: list[SampleKey] = []
        self._arrivals = count()
        self._num_rows = 0  # taken or promised
        self._num_served = 0.0
        self._since_turn = 0
        self._num_steps = 0
        self._step: Step | None = None

    # ---- requests ----

    @property
    def num_waiting(self) -> int:
        return len(self._pending.turns)

    @property
    def num_running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._cancelled)

    def load(self) -> Load:
        use = max(1 - pool.num_available / pool.num_blocks for pool in self.kv.pools)
        return Load(self.num_running, self.num_waiting, use, self.num_preemptions)

    def price(self, request: Request) -> tuple[int, ...]:
        """Blocks of each group that it takes at most."""
        num_prompt = len(request.prompt)
        num_new = self._length_limit(request) - num_prompt
        return self.kv.layout.price(num_prompt, num_new, request.params.n, self.config.max_chunk)

    def _length_limit(self, request: Request) -> int:
        wanted = request.params.max_tokens
        return self.config.max_context if wanted is None else len(request.prompt) + wanted

    def add(self, request: Request) -> None:
        """Raises Refused, before anything is allocated, if it could never run."""
        self._check(request)
        user = self._users.enter(request.user, request.weight)
        holding = self.kv.open(request.namespace, request.num_public_tokens)
        sample = Sample(request, 0, user, holding, next(self._arrivals), self._length_limit(request))
        sample.covers = tuple(range(request.params.n))
        sample.tag = self._num_served + len(request.prompt)
        self._requests[request.id] = {0: sample}
        if request.deadline is not None:
            self._deadlines.push(request.deadline, request.id)
        self._pending.wait(sample)

    def _check(self, request: Request) -> None:
        if request.id in self._requests:
            raise Refused(f"there is a request {request.id!r} already: give it another id")
        if self.num_waiting >= self.config.max_waiting:
            raise Refused(f"{self.num_waiting} requests are waiting: come back later")
        num_prompt, limit, context = len(request.prompt), self._length_limit(request), self.config.max_context
        if num_prompt >= context:
            raise Refused(f"the prompt has {num_prompt} tokens, the context holds {context}: shorten the prompt")
        if limit > context:
            raise Refused(
                f"the prompt has {num_prompt} tokens and max_tokens is {limit - num_prompt}, the context holds "
                f"{context}: set max_tokens to {context - num_prompt} at most"
            )
        if request.params.n > self.config.max_running:
            raise Refused(f"n is {request.params.n}, but {self.config.max_running} samples run at once: lower n")
        for blocks, pool in zip(self.price(request), self.kv.pools, strict=True):
            if blocks > pool.num_blocks:
                raise Refused(
                    f"{limit} tokens in {request.params.n} samples may need {blocks} blocks of memory, there are "
                    f"{pool.num_blocks}: lower max_tokens or n"
                )

    def cancel(self, request_id: str) -> None:
        """End it at the next step's beginning; nothing happens if it is not there (any more)."""
        self._cancelled.append(request_id)

    def finish(self, key: SampleKey) -> None:
        """End a sample between steps, as when a stop string was found in its text."""
        sample = self._requests.get(key.request, {}).get(key.sample)
        if sample is not None:
            self._end(sample)

    def preempt(self, key: SampleKey) -> None:
        """Send a running sample back to wait, between steps."""
        if self._step is not None:
            raise RuntimeError("preempt between schedule and commit")
        sample = self._requests.get(key.request, {}).get(key.sample)
        if sample is not None and sample.state is not State.WAITING:
            self._give_way(sample)

    # ---- a step's plan ----

    def schedule(self, now: float = 0.0) -> StepPlan:
        dropped = self._drop(now)
        step = Step()
        self._plan_decoding(step)
        self._plan_prompts(step, now)
        step.drop_preempted()
        self._num_steps += 1
        self._step = step if step.chunks else None
        starts = [RowStart(key, sample.request, tuple(sample.tokens)) for key, sample in self._starts.items()]
        ends, self._ends = self._ends, []
        self._starts = {}
        return StepPlan(step.chunks, step.copies, starts, ends, dropped)

    def _drop(self, now: float) -> list[Delta]:
        dropped: list[Delta] = []
        for request_id in self._cancelled:
            dropped += self._end_request(request_id, FinishReason.CANCELLED)
        self._cancelled.clear()
        while (first := self._deadlines.peek()) is not None and first[0] <= now:
            dropped += self._end_request(first[1], FinishReason.DEADLINE)
        return dropped

    def _end_request(self, request_id: str, reason: FinishReason) -> list[Delta]:
        samples = list(self._requests.get(request_id, {}).values())
        ended = [(number, sample.num_cached) for sample in samples for number in sample.covers]
        for sample in samples:
            self._end(sample)
        return [Delta(SampleKey(request_id, number), (), reason, num_cached) for number, num_cached in ended]

    def _plan_decoding(self, step: Step) -> None:
        """One token each, and its drafts. Whoever gave way in the meantime is passed over."""
        samples, chunks, num_drafts = step.samples, step.chunks, 0
        for sample in list(self._decoding):
            holding, tokens = sample.holding, (sample.tokens[-1],)
            start = holding.num_computed
            if start < sample.room and not sample.drafts:
                chunks.append(make(Chunk, (sample.key, start, tokens, holding.tables, 1, sample.covers)))
                samples.append(sample)
            elif self._grow_decoding(step, sample):
                drafted, num_logits = tokens + sample.drafts, 1 + len(sample.drafts)
                chunks.append(Chunk(sample.key, start, drafted, holding.tables, num_logits, sample.covers))
                samples.append(sample)
                num_drafts += len(sample.drafts)
        step.num_tokens = len(chunks) + num_drafts

    def _grow_decoding(self, step: Step, sample: Sample) -> bool:
        """Blocks for the next token and the drafts, for the token alone, or at last at the cost of others."""
        if sample.state is not State.DECODING:
            return False
        sample.drafts = sample.drafts[: sample.end - len(sample.tokens) - 1]
        if sample.drafts and self._grow(step, sample, sample.num_computed + 1 + len(sample.drafts)):
            return True
        sample.drafts = ()
        if self._grow_by_force(step, sample, sample.num_computed + 1):
            return True
        self._give_way(sample, step)
        return False

    def _grow(self, step: Step, sample: Sample, num_tokens: int) -> bool:
        copies = self.kv.extend(sample.holding, num_tokens)
        if copies is None:
            return False
        step.copies += copies
        sample.room = sample.holding.num_blocks * self.kv.layout.block_size
        return True

    def _grow_by_force(self, step: Step, sample: Sample, num_tokens: int) -> bool:
        """Others give way until there is room: never the eldest, and none who would go before this one."""
        while not self._grow(step, sample, num_tokens):
            victim = self._next_victim(step)
            if victim is None or (sample is not step.eldest and victim.rank <= sample.rank):
                return False
            self._give_way(victim, step)
        return True

    def _next_victim(self, step: Step) -> Sample | None:
        if step.victims is None:
            running = [*self._decoding, *self._prefilling]
            step.eldest = min(running, key=lambda sample: sample.age)
            step.victims = sorted((one for one in running if one is not step.eldest), key=lambda one: one.rank)
        while step.victims and step.victims[-1].state in (State.WAITING, State.ENDED):
            step.victims.pop()
        return step.victims[-1] if step.victims else None

    # ---- prompts ----

    def _plan_prompts(self, step: Step, now: float) -> None:
        """Chunks of prompts while the budget lasts."""
        budget, num_vain = self._budget(step, now), 0
        if (owed := self._make_way(step)) is not None:
            self._pass_over(step, owed)
            budget -= self._plan_chunk(step, owed, budget)
        while budget > 0 and num_vain < MOST_IN_VAIN and (sample := self._next_prompt(step)) is not None:
            self._pass_over(step, sample)
            num_tokens = self._plan_chunk(step, sample, budget)
            budget -= num_tokens
            num_vain += num_tokens == 0
        for sample in step.passed_over:
            if sample.state in (State.WAITING, State.PREFILLING):
                self._pending.show(sample)

    def _make_way(self, step: Step) -> Sample | None:
        """Where all rows are taken: somebody who waits and would hold at most half of their part of the rows (or one)
        gets one of a user's who holds more than theirs, and whoever is waited for gets one of those who are not. Half:
        between users who always have work the order of admission decides, and nobody is sent to and fro.

        Returns the sample that there is room for now."""
        if self._num_rows < self.config.max_running or not self.num_waiting:
            return None
        for owed in self._pending.candidates(self.config.num_candidates, self.config.slack_tokens):
            if owed.state is not State.WAITING:
                continue
            while (victim := self._who_yields(owed)) is not None and self._has_blocks(owed, self._match(owed)):
                self._give_way(victim, step)
                if self._num_rows + len(owed.covers) <= self.config.max_running:
                    return owed
        return None

    def _who_yields(self, owed: Sample) -> Sample | None:
        """The youngest, never a user's eldest: so that everybody goes on."""
        running = [*self._decoding, *self._prefilling]
        if owed.request.service is ServiceClass.INTERACTIVE:
            unhurried = [one for one in running if one.request.service is ServiceClass.BATCH]
            if len(unhurried) > 1:
                return max(unhurried, key=lambda one: one.age)
        num_rows = self.config.max_running
        if owed.user.num_rows + len(owed.covers) > max(1.0, self._users.part(owed.user, num_rows) / 2):
            return None
        user = self._users.largest_holder()
        if user.num_rows <= max(1.0, self._users.part(user, num_rows)):
            return None
        own = sorted((one for one in running if one.user is user), key=lambda one: one.age)
        return own[-1] if len(own) > 1 and own[-1].band >= owed.band else None

    def _pass_over(self, step: Step, sample: Sample) -> None:
        """Once in a step is enough, whether it gets a chunk or not."""
        step.passed_over[sample] = None
        self._pending.hide(sample)

    def _budget(self, step: Step, now: float) -> int:
        """Prompt tokens that keep the step within its time, as far as steps so far tell."""
        config, num_decoding = self.config, step.num_tokens
        room = max(config.max_step_tokens - num_decoding, config.min_chunk)
        interactive = any(sample.request.service is ServiceClass.INTERACTIVE for sample in self._decoding)
        target = config.gap_ms if interactive else config.batch_gap_ms
        decode_ms = self.speed.predict_ms(num_decoding)
        if interactive and decode_ms is not None:
            target = min(target, config.max_gap_ratio * decode_ms)
        if (first := self._deadlines.peek()) is not None:
            target = min(target, (first[0] - now) * 1000 + config.late_ms)
        within = self.speed.tokens_within(target)
        wanted = config.first_chunk if within is None else within - num_decoding
        return min(max(wanted, config.min_chunk), room)

    @property
    def _is_turn(self) -> bool:
        """Whether the next admission is for who has waited longest. Until it fits, nobody else is admitted."""
        return self._since_turn >= self.config.turn_every - 1

    def _next_prompt(self, step: Step) -> Sample | None:
        first = self._pending.turns.first() if self._is_turn else None
        if first is not None and first not in step.passed_over:
            return first
        begun = [sample for sample in self._prefilling if sample not in step.passed_over]
        if begun and self._num_steps % self.config.turn_every == 0:
            return begun[0]
        if first is not None or self._num_rows >= self.config.max_running:
            return min(begun, key=lambda sample: (sample.band, sample.user.counter, sample.tag), default=None)
        found = self._pending.candidates(self.config.num_candidates, self.config.slack_tokens)
        return max(found, key=self._num_known, default=None)

    def _num_known(self, sample: Sample) -> int:
        """Blocks that need not be computed, among equals; who has begun goes before who has not."""
        if sample.state is State.PREFILLING:
            return self.config.max_context
        return len(self._match(sample))

    def _match(self, sample: Sample) -> list[Node]:
        return self.kv.match(sample.holding, sample.known_keys(self.kv.layout.block_size))

    def _plan_chunk(self, step: Step, sample: Sample, budget: int) -> int:
        """The number of tokens it got: none if there is no room, or if another's chunk computes the same block."""
        nodes = self._match(sample)
        if self._is_being_filled(step, sample, nodes):
            return 0
        if sample.state is State.WAITING:
            if not self._has_room(sample, nodes):
                return 0
            self._admit(sample)
        if nodes:
            self._adopt(sample)
        start = sample.num_computed
        num_tokens = self._chunk_size(start, sample.num_left, budget)
        if not self._grow_by_force(step, sample, start + num_tokens):
            return 0
        self._note_filling(step, sample, start + num_tokens)
        self._charge_prompt(sample, start + num_tokens)
        is_last = num_tokens == sample.num_left
        tokens = tuple(sample.tokens[start : start + num_tokens])
        covers = sample.covers if is_last else ()
        num_logits = int(is_last and not sample.request.embeds)
        step.add(sample, Chunk(sample.key, start, tokens, sample.holding.tables, num_logits, covers))
        return num_tokens

    def _chunk_size(self, start: int, num_left: int, budget: int) -> int:
        """A chunk that is not the last ends with a block, where it can, so that others can share it."""
        num_tokens = min(num_left, budget, self.config.max_chunk)
        beyond = (start + num_tokens) % self.kv.layout.block_size
        return num_tokens - beyond if num_tokens < num_left and beyond < num_tokens else num_tokens

    def _adopt(self, sample: Sample) -> None:
        """What it finds beyond what it had computed itself, before it gave way, is a gain."""
        self.kv.adopt(sample.holding, sample.known_keys(self.kv.layout.block_size))
        gain = max(0, sample.num_computed - sample.num_charged)
        sample.num_cached += gain
        sample.num_charged += gain

    def _charge_prompt(self, sample: Sample, num_tokens: int) -> None:
        """What was cached, and what is computed anew after giving way, costs the user nothing."""
        if (cost := num_tokens - sample.num_charged) > 0:
            sample.num_charged = num_tokens
            sample.user.counter += cost * sample.user.share
            self._num_served += cost

    def _charge_output(self, sample: Sample) -> None:
        """When a block fills, or it leaves: not for each token, since there are so many."""
        if sample.state is State.DECODING:
            cost = self.config.output_cost * (len(sample.tokens) - sample.num_charged)
            sample.num_charged = len(sample.tokens)
            sample.user.counter += cost * sample.user.share
            self._num_served += cost

    def _is_being_filled(self, step: Step, sample: Sample, nodes: list[Node]) -> bool:
        """Whether another's chunk computes its next block: then it waits, and finds it there in the next step."""
        if not step.filling:
            return False
        known = sample.holding.num_shared + len(nodes)
        keys = sample.known_keys(self.kv.layout.block_size)
        if known >= len(keys):
            return False
        node = nodes[-1] if nodes else sample.holding.cursor
        return any((node, namespace, keys[known]) in step.filling for namespace in (sample.holding.namespace, None))

    def _note_filling(self, step: Step, sample: Sample, num_tokens: int) -> None:
        holding, size = sample.holding, self.kv.layout.block_size
        first, keys = holding.num_shared, sample.full_keys(size)
        if self.kv.caching and num_tokens >= (first + 1) * size and first < len(keys):
            public = (first + 1) * size <= holding.num_public_tokens and holding.cursor.namespace is None
            namespace = None if public else holding.namespace
            step.filling.add((holding.cursor, namespace, keys[first]))

    # ---- coming and going ----

    def _has_room(self, sample: Sample, nodes: list[Node]) -> bool:
        return self._num_rows + len(sample.covers) <= self.config.max_running and self._has_blocks(sample, nodes)

    def _has_blocks(self, sample: Sample, nodes: list[Node]) -> bool:
        num_tokens, num_samples = len(sample.tokens), len(sample.covers)
        num_new = max(1, min(self.config.headroom_tokens, sample.end - num_tokens))
        price = self.kv.layout.price(num_tokens, num_new, num_samples, self.config.max_chunk)
        return self.kv.has_room(sample.holding, nodes, price, self._reserved())

    def _reserved(self) -> list[int]:
        """Blocks of each group that those who run will want soon: for the rest of their prompts, and to decode into."""
        layout, reserved = self.kv.layout, [len(self._decoding) // 2] * len(self.kv.pools)
        for sample in self._prefilling:
            prices = layout.price(len(sample.tokens), 1, 1, self.config.max_chunk)
            for number, price in enumerate(prices):
                held = sample.holding.num_blocks - sample.holding.firsts[number]
                reserved[number] += max(0, price - held)
        return reserved

    def _admit(self, sample: Sample) -> None:
        if self._is_turn and sample is self._pending.turns.first():
            self._since_turn = 0
            self._pending.turns.end_turn(sample.user)
        else:
            self._since_turn += 1
        self._pending.admit(sample)
        self._prefilling[sample] = None
        self._enter(sample, State.PREFILLING)
        self._num_rows += len(sample.covers)
        sample.user.num_rows += len(sample.covers)

    def _enter(self, sample: Sample, state: State) -> None:
        sample.state = state
        self._starts[sample.key] = sample

    def _give_way(self, sample: Sample, step: Step | None = None) -> None:
        """Preempt: give all blocks back, as at the end; the full ones stay in the tree, so the return is cheap."""
        self._leave(sample)
        self.kv.release(sample.holding)
        self._charge_output(sample)
        sample.state = State.WAITING
        sample.room = sample.plain_until = 0
        sample.drafts = ()
        self._pending.wait(sample)
        self.num_preemptions += 1
        if step is not None:
            step.preempted.add(sample)
            self._pass_over(step, sample)

    def _leave(self, sample: Sample) -> None:
        """Out of whatever it is in: row, queues."""
        if sample.state is State.WAITING:
            self._pending.admit(sample)
            self._pending.remove(sample)
            return
        if sample.state is State.PREFILLING:
            self._pending.remove(sample)
            del self._prefilling[sample]
        else:
            del self._decoding[sample]
        self._num_rows -= len(sample.covers)
        sample.user.num_rows -= len(sample.covers)
        if self._starts.pop(sample.key, None) is None:
            self._ends.append(sample.key)

    def _end(self, sample: Sample) -> None:
        self._leave(sample)
        self._charge_output(sample)
        sample.state = State.ENDED
        sample.plain_until = 0
        self.kv.close(sample.holding)
        self._users.leave(sample.user)
        siblings = self._requests[sample.key.request]
        del siblings[sample.key.sample]
        if not siblings:
            del self._requests[sample.key.request]
            self._deadlines.discard(sample.key.request)

    # ---- a step's result ----

    def commit(self, result: StepResult) -> list[Delta]:
        """Advance everyone in the plan by what was computed and accepted."""
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("commit without schedule")
        if result.stopped:
            return []
        self.speed.observe(step.num_tokens, result.elapsed_ms)
        deltas: list[Delta] = []
        outputs = iter(result.outputs)
        for sample, chunk in zip(step.samples, step.chunks, strict=True):
            _, start, tokens, _, _, samples = chunk
            if sample.key in result.failed:
                deltas += self._end_request(sample.key.request, FinishReason.ERROR)
                for _ in samples:
                    next(outputs)
                continue
            if not samples:
                self._advance(sample, start + len(tokens))
                continue
            output = key, drawn, drafts = next(outputs)
            if key != sample.key:
                raise ValueError(f"the output of {key} where that of {sample.key} belongs")
            if start < sample.plain_until and len(drawn) == 1 and -1 < drawn[0] not in sample.stops:
                # _draw in short, for nearly every token there is: it fills no block and is not the last.
                sample.tokens.append(drawn[0])
                sample.holding.num_computed = start + 1
                sample.drafts = drafts
                deltas.append(make(Delta, (key, drawn, None, 0)))
            else:
                self._draw(sample, chunk, output, [next(outputs) for _ in samples[1:]], deltas)
        if next(outputs, None) is not None:
            raise ValueError("more outputs than the plan has samples")
        return deltas

    def _draw(self, sample: Sample, chunk: Chunk, output: Output, others: list[Output], deltas: list[Delta]) -> None:
        if sample.state is State.ENDED:
            return
        num_computed = chunk.start + len(chunk.tokens) - chunk.num_logits + len(output.tokens)
        kept, reason = self._accept(sample, output.tokens)
        self._advance(sample, num_computed)
        if sample.state is State.PREFILLING:
            self._start_decoding(sample)
        self._charge_output(sample)
        for other in others:
            self._fork(sample, other, deltas)
        deltas.append(Delta(output.key, kept, reason, sample.num_cached if reason else 0))
        sample.drafts = output.drafts
        if reason:
            self._end(sample)

    def _accept(self, sample: Sample, drawn: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Its new tokens, up to the one that ends it. An embedding ends without one."""
        tokens = sample.tokens
        reason: FinishReason | None = None if drawn else FinishReason.STOP
        for number, token in enumerate(drawn, 1):
            if token < 0:
                drawn, reason = drawn[: number - 1], FinishReason.ERROR
                break
            tokens.append(token)
            if token in sample.stops:
                drawn, reason = drawn[:number], FinishReason.STOP
                break
            if len(tokens) >= sample.end:
                drawn, reason = drawn[:number], FinishReason.LENGTH
                break
        return drawn, reason

    def _advance(self, sample: Sample, num_computed: int) -> None:
        """So many tokens are computed: tell the blocks."""
        if sample.state is State.ENDED:
            return
        num_computed = min(num_computed, len(sample.tokens))
        self.kv.commit(sample.holding, num_computed, sample.full_keys(self.kv.layout.block_size))
        if sample.state is State.DECODING:
            # Then the next token changes its blocks, or the one after it is the last.
            sample.plain_until = min(self.kv.next_change(num_computed) - 1, sample.end - 2)

    def _start_decoding(self, sample: Sample) -> None:
        self._pending.remove(sample)
        del self._prefilling[sample]
        self._decoding[sample] = None
        sample.state = State.DECODING

    def _fork(self, parent: Sample, output: Output, deltas: list[Delta]) -> None:
        """A sample of its own at the prompt's end: it shares all blocks, and draws its own tokens from here on."""
        holding = self.kv.fork(parent.holding)
        user = self._users.enter(parent.request.user)
        sample = Sample(parent.request, output.key.sample, user, holding, parent.arrival, parent.end)
        sample.tag, sample.num_cached = parent.tag, parent.num_cached
        sample.num_charged = holding.num_computed
        self._requests[parent.request.id][output.key.sample] = sample
        parent.covers = (parent.key.sample,)
        parent.room = 0  # to write to a block that is now shared it must look at the blocks again
        self._decoding[sample] = None
        self._enter(sample, State.DECODING)
        kept, reason = self._accept(sample, output.tokens)
        self._charge_output(sample)
        deltas.append(Delta(sample.key, kept, reason, sample.num_cached if reason else 0))
        if reason:
            self._end(sample)

    # ---- the books ----

    def audit(self) -> None:
        """Prove that samples are where their state says, and the blocks' books. For tests: it walks all there is."""
        self.kv.audit()
        samples = [sample for siblings in self._requests.values() for sample in siblings.values()]
        running = [sample for sample in samples if sample.state is not State.WAITING]
        assert {sample for sample in samples if sample.state is State.WAITING} == set(self._pending.turns)
        assert {sample for sample in samples if sample.state is not State.DECODING} == set(self._pending)
        assert {sample for sample in samples if sample.state is State.PREFILLING} == set(self._prefilling)
        assert {sample for sample in samples if sample.state is State.DECODING} == set(self._decoding)
        assert self._num_rows == sum(len(sample.covers) for sample in running) <= self.config.max_running
        assert self._starts.keys() <= {sample.key for sample in running}
        for user in {sample.user for sample in samples}:
            assert user.num_rows == sum(len(sample.covers) for sample in running if sample.user is user)
        self._users.audit([sample.user for sample in samples])
        for sample in samples:
            self._audit_sample(sample)

    def _audit_sample(self, sample: Sample) -> None:
        holding, size = sample.holding, self.kv.layout.block_size
        assert holding.num_computed < len(sample.tokens) <= sample.end
        assert sample.room <= holding.num_blocks * size
        assert sample.state is not State.DECODING or sample.num_left == 1
        assert sample.state is not State.WAITING or holding.num_blocks == 0
