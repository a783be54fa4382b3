"""The running samples: their rows, their blocks, the charges to their users, and the step that is being planned.
Preemption, which takes blocks and rows from them."""

from surefoot.core import NO_STATES, BlockCopy, Chunk, ChunkStates, RowStart, SampleKey, ServiceClass
from surefoot.kv import BlockKey, KvManager, PrefixNode, snapshot_positions
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.queue import PromptQueue
from surefoot.scheduler.sample import ColdBlocks, Sample, State, User, Users


class PlannedStep:
    """The step that is being planned: its chunks so far, and what later phases need to know of them."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.samples: list[Sample] = []  # of the chunks, in the same order
        self.copies: list[BlockCopy] = []
        self.preempted: set[Sample] = set()
        self.victims: list[Sample] | None = None  # the first to preempt is last; None until a victim is needed
        self.oldest: Sample | None = None  # the oldest running sample, which is never preempted
        self.computing: set[tuple[PrefixNode, str | None, BlockKey]] = set()  # blocks that a chunk of this step fills
        self.num_tokens = 0
        self.num_context_tokens = 0  # sum over prompt tokens of the earlier tokens that each attends to
        self.is_urgent = False  # whether a chunk belongs to an urgent prompt

    def add(self, sample: Sample, chunk: Chunk) -> None:
        self.samples.append(sample)
        self.chunks.append(chunk)
        self.num_tokens += len(chunk.tokens)
        self.num_context_tokens += chunk.start * len(chunk.tokens)

    def drop_preempted(self) -> None:
        """Drop the chunks of samples that were preempted after their chunk was planned."""
        if self.preempted:
            kept = [pair for pair in zip(self.samples, self.chunks, strict=True) if pair[0] not in self.preempted]
            self.samples, self.chunks = [sample for sample, _ in kept], [chunk for _, chunk in kept]
            self.num_tokens = sum(len(chunk.tokens) for chunk in self.chunks)


class SampleBlocks:
    """The blocks of samples: the cached ones, the allocated ones, and those that a step computes."""

    def __init__(self, kv: KvManager, cold: ColdBlocks | None) -> None:
        self._kv = kv
        self._cold = cold
        self.block_size = kv.layout.block_size
        self.has_states = kv.states is not None

    def match(self, sample: Sample) -> list[PrefixNode]:
        """The cached nodes that hold the sample's next blocks."""
        return self._kv.match(sample.holding, sample.known_keys(self.block_size))

    def adopt(self, sample: Sample) -> None:
        """Use the cached blocks. Tokens that the sample computed before a preemption do not count as cached."""
        self._kv.adopt(sample.holding, sample.known_keys(self.block_size))
        num_cached = max(0, sample.num_computed - sample.num_charged)
        sample.num_cached += num_cached
        sample.num_charged += num_cached

    def expect(self, sample: Sample) -> None:
        """The sample will wait for a while."""
        if self._cold is not None and (keys := sample.known_keys(self.block_size)):
            self._cold.expect(sample.holding, keys)

    def is_reading(self, sample: Sample, cached: list[PrefixNode]) -> bool:
        """Whether blocks after the cached ones are being read into the tree, for which a waiting sample waits. The
        first question starts it."""
        if self._cold is None:
            return False
        if sample.reading is not None:
            if not sample.reading.is_done:
                return True
            sample.reading = None
            return False
        keys = sample.known_keys(self.block_size)
        sample.reading = self._cold.start_read(sample.holding, keys, cached) if len(cached) < len(keys) else None
        return sample.reading is not None

    def grow(self, step: PlannedStep, sample: Sample, num_tokens: int) -> bool:
        """Allocate blocks for `num_tokens` tokens in all; False if there are too few."""
        copies = self._kv.extend(sample.holding, num_tokens)
        if copies is None:
            return False
        step.copies += copies
        sample.num_slots = sample.holding.num_blocks * self.block_size
        return True

    def advance(self, sample: Sample, num_computed: int) -> None:
        """Record that the sample's first `num_computed` tokens are computed."""
        if sample.state is State.ENDED:
            return
        num_computed = min(num_computed, len(sample.tokens))
        self._kv.commit(sample.holding, num_computed, sample.full_keys(self.block_size))
        if sample.state is State.DECODING and not self.has_states:
            # From there on, the next token changes the blocks or is the last.
            sample.fast_until = min(self._kv.next_change(num_computed) - 1, sample.end - 2)

    def release(self, sample: Sample) -> None:
        """Release all blocks. Full ones stay in the prefix tree, so that readmission is cheap."""
        self._kv.release(sample.holding)
        sample.num_slots = sample.fast_until = 0

    # ---- slots of states ----

    def may_draft(self, num_drafts: int) -> bool:
        """Whether the states after that many drafts can be saved too."""
        return self._kv.states is None or self._kv.states.has_room(num_drafts)

    def save_drafted(self, sample: Sample, num_drafts: int) -> ChunkStates:
        """Slots for the state after the next token, and after every draft: any of them may be the last accepted."""
        if self._kv.states is None:
            return NO_STATES
        start = sample.num_computed
        return self._kv.states.plan(sample.holding.states, start, range(start + 1 + num_drafts, start, -1))

    def save_prompt(self, sample: Sample, num_tokens: int) -> ChunkStates:
        """Slots for the state after a chunk of a prompt, and for snapshots inside it."""
        if self._kv.states is None:
            return NO_STATES
        start, end = sample.num_computed, sample.num_computed + num_tokens
        return self._kv.states.plan(sample.holding.states, start, (end,), self._snapshots(sample, start, end))

    def _snapshots(self, sample: Sample, start: int, end: int) -> list[int]:
        keys, holding, layout = sample.full_keys(self.block_size), sample.holding, self._kv.layout
        if layout.states is None or not keys or not self._kv.caching:
            return []
        public = holding.num_public_tokens // self.block_size * self.block_size
        branches, chunk = (self._kv.num_known(holding, keys), public), range(start + 1, end + 1)
        return list(snapshot_positions(layout.states, self.block_size, len(sample.tokens), branches, chunk))

    # ---- blocks that chunks of one step compute ----

    def is_being_computed(self, step: PlannedStep, sample: Sample, cached: list[PrefixNode]) -> bool:
        """Whether another chunk of the step computes the sample's next block. The sample then waits for one step and
        finds the block cached."""
        if not step.computing:
            return False
        num_known = sample.holding.num_shared + len(cached)
        keys = sample.known_keys(self.block_size)
        if num_known >= len(keys):
            return False
        node = cached[-1] if cached else sample.holding.cursor
        namespaces = (sample.holding.namespace, None)
        return any((node, namespace, keys[num_known]) in step.computing for namespace in namespaces)

    def note_computing(self, step: PlannedStep, sample: Sample, num_tokens: int) -> None:
        """Note the block that the sample's chunk fills, if it fills one that others may share."""
        holding, end = sample.holding, (sample.holding.num_shared + 1) * self.block_size
        first, keys = holding.num_shared, sample.full_keys(self.block_size)
        if self._kv.caching and num_tokens >= end and first < len(keys):
            is_public = end <= holding.num_public_tokens and holding.cursor.namespace is None
            step.computing.add((holding.cursor, None if is_public else holding.namespace, keys[first]))


class RunningSamples:
    """The samples that have a row. While a sample represents all n samples of its request, n rows are reserved."""

    def __init__(
        self, config: SchedulerConfig, kv: KvManager, users: Users, queue: PromptQueue, cold: ColdBlocks | None = None
    ) -> None:
        self.num_rows = config.max_running
        self.num_taken = 0  # rows, reserved ones included
        self.num_batch = 0  # running samples of service class BATCH
        self.prefilling: dict[Sample, None] = {}  # in the order of admission
        self.decoding: dict[Sample, None] = {}
        self.blocks = SampleBlocks(kv, cold)
        self._config = config
        self._kv = kv
        self._users = users
        self._queue = queue
        self._starts: dict[SampleKey, Sample] = {}  # samples that took a row since the last plan
        self._ends: list[SampleKey] = []  # samples that left their row since the last plan

    def __len__(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    @property
    def all(self) -> list[Sample]:
        return [*self.prefilling, *self.decoding]

    # ---- rows ----

    @property
    def is_full(self) -> bool:
        return self.num_taken >= self.num_rows

    def has_row_for(self, sample: Sample) -> bool:
        return self.num_taken + len(sample.sample_numbers) <= self.num_rows

    def fair_share(self, user: User) -> float:
        """The user's fair share of the rows; not a whole number in general."""
        return self._users.fair_share(user, self.num_rows)

    def largest_holder(self) -> User | None:
        """The user with most rows relative to their weight, of the users with several."""
        return self._users.largest_holder()

    def admit(self, sample: Sample) -> None:
        self._queue.admit(sample)
        self.prefilling[sample] = None
        self._enter(sample, State.PREFILLING)
        self.num_taken += len(sample.sample_numbers)
        sample.user.num_rows += len(sample.sample_numbers)

    def start_decoding(self, sample: Sample) -> None:
        """The sample's prompt is computed."""
        self._queue.remove(sample)
        del self.prefilling[sample]
        self.decoding[sample] = None
        sample.state = State.DECODING

    def add_fork(self, sample: Sample) -> None:
        """The sample takes a row that was reserved for its parent."""
        self.decoding[sample] = None
        self._enter(sample, State.DECODING)

    def _enter(self, sample: Sample, state: State) -> None:
        sample.state = state
        self.num_batch += sample.is_batch
        self._starts[sample.key] = sample

    def leave(self, sample: Sample, state: State) -> None:
        """The sample leaves its row or the queue. state: WAITING or ENDED."""
        if sample.state is State.WAITING:
            self._queue.admit(sample)
            self._queue.remove(sample)
        else:
            self._leave_row(sample)
        sample.state = state

    def _leave_row(self, sample: Sample) -> None:
        if sample.state is State.PREFILLING:
            self._queue.remove(sample)
            del self.prefilling[sample]
        else:
            del self.decoding[sample]
            self.charge_output(sample)
        self.num_taken -= len(sample.sample_numbers)
        self.num_batch -= sample.is_batch
        sample.user.num_rows -= len(sample.sample_numbers)
        if self._starts.pop(sample.key, None) is None:
            self._ends.append(sample.key)

    def take_changes(self) -> tuple[list[RowStart], list[SampleKey]]:
        """Samples that took a row and samples that left theirs since the last plan."""
        starts = [RowStart(key, sample.request, tuple(sample.tokens)) for key, sample in self._starts.items()]
        ends, self._ends = self._ends, []
        self._starts = {}
        return starts, ends

    # ---- blocks ----

    def has_blocks_for(self, sample: Sample, cached: list[PrefixNode]) -> bool:
        """Whether there are blocks for its prompt and some output, beside those that running samples will need.

        cached: nodes that hold its next blocks.
        """
        num_tokens, num_samples = len(sample.tokens), len(sample.sample_numbers)
        num_new = max(1, min(self._config.headroom_tokens, sample.end - num_tokens))
        price = self._kv.layout.price(num_tokens, num_new, num_samples, self._config.max_chunk)
        return self._kv.has_room(sample.holding, cached, price, self._reserved())

    def _reserved(self) -> list[int]:
        """Blocks of each group that running samples will need soon, for the rest of their prompts and to decode."""
        layout, reserved = self._kv.layout, [len(self.decoding) // 2] * len(self._kv.pools)
        for sample in self.prefilling:
            prices = layout.price(len(sample.tokens), 1, 1, self._config.max_chunk)
            for group, price in enumerate(prices):
                num_held = sample.holding.num_blocks - sample.holding.firsts[group]
                reserved[group] += max(0, price - num_held)
        return reserved

    # ---- charges ----

    def charge_prompt(self, sample: Sample, num_tokens: int) -> None:
        """Charge for the first `num_tokens` tokens. Cached tokens are free, and so are recomputed ones."""
        if (cost := num_tokens - sample.num_charged) > 0:
            sample.num_charged = num_tokens
            self._users.charge(sample.user, cost)

    def charge_output(self, sample: Sample) -> None:
        """Charge for output. Called when a block fills or the sample leaves: once per token would take too long."""
        num_tokens = len(sample.tokens)
        cost = self._config.output_cost * (num_tokens - sample.num_charged)
        sample.num_charged = num_tokens
        self._users.charge(sample.user, cost)

    def audit(self, samples: list[Sample]) -> None:
        """Check the counts. samples: all that have not ended."""
        running = [sample for sample in samples if sample.state is not State.WAITING]
        assert {sample for sample in running if sample.state is State.PREFILLING} == set(self.prefilling)
        assert {sample for sample in running if sample.state is State.DECODING} == set(self.decoding)
        assert self.num_taken == sum(len(sample.sample_numbers) for sample in running) <= self.num_rows
        assert self.num_batch == sum(sample.is_batch for sample in running)
        assert self._starts.keys() <= {sample.key for sample in running}
        for user in {sample.user for sample in samples}:
            assert user.num_rows == sum(len(sample.sample_numbers) for sample in running if sample.user is user)


class Preemption:
    """Chooses victims and preempts them.

    Blocks are taken by rank: from the least urgent sample, and of equals from the youngest. Rows are taken by fair
    share: from the user furthest above theirs.
    """

    def __init__(self, config: SchedulerConfig, running: RunningSamples, queue: PromptQueue) -> None:
        self.num_preemptions = 0
        self._config = config
        self._running = running
        self._queue = queue

    def preempt(self, sample: Sample, step: PlannedStep | None = None) -> None:
        """Send the sample back to the queue, without blocks. step: the step that is being planned, if any."""
        self._running.leave(sample, State.WAITING)
        self._running.blocks.release(sample)
        sample.drafts = ()
        self._queue.enqueue(sample)
        self.num_preemptions += 1
        if step is not None:
            step.preempted.add(sample)
            self._queue.skip(sample)

    # ---- blocks ----

    def grow(self, step: PlannedStep, sample: Sample, num_tokens: int) -> bool:
        """Allocate blocks for `num_tokens` tokens in all, by preempting other samples if need be.

        The oldest sample is never preempted, and no sample is preempted for one of higher rank.
        """
        while not self._running.blocks.grow(step, sample, num_tokens):
            victim = self._next_victim(step)
            if victim is None or (sample is not step.oldest and victim.rank <= sample.rank):
                return False
            self.preempt(victim, step)
        return True

    def _next_victim(self, step: PlannedStep) -> Sample | None:
        if step.victims is None:
            samples = self._running.all
            step.oldest = min(samples, key=lambda sample: sample.age)
            others = (sample for sample in samples if sample is not step.oldest)
            step.victims = sorted(others, key=lambda sample: sample.rank)
        while step.victims and step.victims[-1].state in (State.WAITING, State.ENDED):
            step.victims.pop()
        return step.victims[-1] if step.victims else None

    # ---- rows ----

    def free_row(self, step: PlannedStep) -> Sample | None:
        """If all rows are taken, free one for a waiting sample and return that sample.

        An interactive sample takes a row from a batch sample. A user who would hold at most half of their fair share
        (or one row) takes a row from the user furthest above theirs. The threshold is half, so that users who always
        have work do not preempt each other again and again: the order of admission decides between them.
        """
        if not self._running.is_full or not self._queue.waiting:
            return None
        for waiting in self._queue.candidates(self._config.num_candidates, self._config.slack_tokens):
            if waiting.state is not State.WAITING:
                continue
            while (victim := self._row_victim(waiting)) is not None and self._has_blocks_for(waiting):
                self.preempt(victim, step)
                if self._running.has_row_for(waiting):
                    return waiting
        return None

    def _has_blocks_for(self, sample: Sample) -> bool:
        return self._running.has_blocks_for(sample, self._running.blocks.match(sample))

    def _row_victim(self, waiting: Sample) -> Sample | None:
        """The youngest sample of the user who must yield; never a user's oldest, so that every user advances."""
        running = self._running
        if waiting.request.service is ServiceClass.INTERACTIVE and running.num_batch > 1:
            return max((sample for sample in running.all if sample.is_batch), key=lambda sample: sample.age)
        num_rows = waiting.user.num_rows + len(waiting.sample_numbers)
        if num_rows > max(1.0, running.fair_share(waiting.user) / 2):
            return None
        user = running.largest_holder()
        if user is None or user.num_rows <= max(1.0, running.fair_share(user)):
            return None
        samples = sorted((sample for sample in running.all if sample.user is user), key=lambda sample: sample.age)
        return samples[-1] if len(samples) > 1 and samples[-1].precedence >= waiting.precedence else None
