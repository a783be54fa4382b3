"""The samples that run: their rows, their blocks, what their users pay, and the plan of the step in the making."""

from surefoot.core import NO_STATES, BlockCopy, Chunk, ChunkStates, RowStart, SampleKey
from surefoot.kv import BlockKey, KvManager, PrefixNode, snapshot_positions
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.queue import PromptQueue
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.users import User, Users


class PlannedStep:
    """Chunks so far, and what the rest of the plan must know of them."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.samples: list[Sample] = []  # of the chunks, in the same order
        self.copies: list[BlockCopy] = []
        self.preempted: set[Sample] = set()
        self.victims: list[Sample] | None = None  # the first to preempt comes last; None until one is needed
        self.oldest: Sample | None = None  # of the running samples: never preempted
        self.computing: set[tuple[PrefixNode, str | None, BlockKey]] = set()  # blocks that a chunk of this step fills
        self.num_tokens = 0
        self.num_context_tokens = 0  # that the tokens of prompts attend to, all together
        self.is_urgent = False  # whether a chunk belongs to an urgent prompt

    def add(self, sample: Sample, chunk: Chunk) -> None:
        self.samples.append(sample)
        self.chunks.append(chunk)
        self.num_tokens += len(chunk.tokens)
        self.num_context_tokens += chunk.start * len(chunk.tokens)

    def drop_preempted(self) -> None:
        """Drop the chunks of samples that were preempted after they were planned."""
        if self.preempted:
            kept = [pair for pair in zip(self.samples, self.chunks, strict=True) if pair[0] not in self.preempted]
            self.samples, self.chunks = [sample for sample, _ in kept], [chunk for _, chunk in kept]
            self.num_tokens = sum(len(chunk.tokens) for chunk in self.chunks)


class SampleBlocks:
    """Blocks for samples: which ones are cached, which ones they take, and which ones a step computes."""

    def __init__(self, kv: KvManager) -> None:
        self._kv = kv
        self.block_size = kv.layout.block_size
        self.has_states = kv.states is not None

    def match(self, sample: Sample) -> list[PrefixNode]:
        """The cached nodes that hold its next blocks."""
        return self._kv.match(sample.holding, sample.known_keys(self.block_size))

    def adopt(self, sample: Sample) -> None:
        """Take the cached blocks. Tokens that it had not computed itself before it was preempted count as cached."""
        self._kv.adopt(sample.holding, sample.known_keys(self.block_size))
        num_gained = max(0, sample.num_computed - sample.num_charged)
        sample.num_cached += num_gained
        sample.num_charged += num_gained

    def grow(self, step: PlannedStep, sample: Sample, num_tokens: int) -> bool:
        """Make room for that many tokens in all; False if there are too few blocks."""
        copies = self._kv.extend(sample.holding, num_tokens)
        if copies is None:
            return False
        step.copies += copies
        sample.num_slots = sample.holding.num_blocks * self.block_size
        return True

    def advance(self, sample: Sample, num_computed: int) -> None:
        """That many of its tokens are computed now."""
        if sample.state is State.ENDED:
            return
        num_computed = min(num_computed, len(sample.tokens))
        self._kv.commit(sample.holding, num_computed, sample.full_keys(self.block_size))
        if sample.state is State.DECODING and not self.has_states:
            # Then the next token changes its blocks, or the one after it is the last.
            sample.plain_until = min(self._kv.next_change(num_computed) - 1, sample.end - 2)

    def release(self, sample: Sample) -> None:
        """Give back all its blocks. The full ones stay in the tree, so that its return is cheap."""
        self._kv.release(sample.holding)
        sample.num_slots = sample.plain_until = 0

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
        """Whether another sample's chunk computes its next block: it then waits a step and finds the block cached."""
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
        """Note the block that its chunk fills, if the tokens up to `num_tokens` fill one that others may share."""
        holding, end = sample.holding, (sample.holding.num_shared + 1) * self.block_size
        first, keys = holding.num_shared, sample.full_keys(self.block_size)
        if self._kv.caching and num_tokens >= end and first < len(keys):
            is_public = end <= holding.num_public_tokens and holding.cursor.namespace is None
            step.computing.add((holding.cursor, None if is_public else holding.namespace, keys[first]))


class RunningSamples:
    """A sample that runs takes a row. While it stands for all n samples of its request, n rows are promised to it."""

    def __init__(self, config: SchedulerConfig, kv: KvManager, users: Users, queue: PromptQueue) -> None:
        self.num_rows = config.max_running
        self.num_taken = 0  # rows, promised ones included
        self.num_batch = 0  # samples of service class BATCH
        self.prefilling: dict[Sample, None] = {}  # in the order of admission
        self.decoding: dict[Sample, None] = {}
        self.blocks = SampleBlocks(kv)
        self._config = config
        self._kv = kv
        self._users = users
        self._queue = queue
        self._starts: dict[SampleKey, Sample] = {}  # that the next plan announces
        self._ends: list[SampleKey] = []

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
        return self.num_taken + len(sample.covers) <= self.num_rows

    def fair_share(self, user: User) -> float:
        """The user's fair share of the rows, a fraction."""
        return self._users.fair_share(user, self.num_rows)

    def largest_holder(self) -> User:
        """The user with most rows for their weight."""
        return self._users.largest_holder()

    def admit(self, sample: Sample) -> None:
        self._queue.admit(sample)
        self.prefilling[sample] = None
        self._enter(sample, State.PREFILLING)
        self.num_taken += len(sample.covers)
        sample.user.num_rows += len(sample.covers)

    def start_decoding(self, sample: Sample) -> None:
        """Its prompt is computed."""
        self._queue.remove(sample)
        del self.prefilling[sample]
        self.decoding[sample] = None
        sample.state = State.DECODING

    def add_fork(self, sample: Sample) -> None:
        """It takes a row that was promised to its parent."""
        self.decoding[sample] = None
        self._enter(sample, State.DECODING)

    def _enter(self, sample: Sample, state: State) -> None:
        sample.state = state
        self.num_batch += sample.is_batch
        self._starts[sample.key] = sample

    def leave(self, sample: Sample, state: State) -> None:
        """Out of its row or out of the queue, and into that state: WAITING or ENDED."""
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
        self.num_taken -= len(sample.covers)
        self.num_batch -= sample.is_batch
        sample.user.num_rows -= len(sample.covers)
        if self._starts.pop(sample.key, None) is None:
            self._ends.append(sample.key)

    def announce(self) -> tuple[list[RowStart], list[SampleKey]]:
        """Samples that entered a row and those that left theirs since the last plan."""
        starts = [RowStart(key, sample.request, tuple(sample.tokens)) for key, sample in self._starts.items()]
        ends, self._ends = self._ends, []
        self._starts = {}
        return starts, ends

    # ---- blocks ----

    def has_blocks_for(self, sample: Sample, cached: list[PrefixNode]) -> bool:
        """For its prompt and some output, beside what running samples will need. cached: nodes that hold its next
        blocks."""
        num_tokens, num_samples = len(sample.tokens), len(sample.covers)
        num_new = max(1, min(self._config.headroom_tokens, sample.end - num_tokens))
        price = self._kv.layout.price(num_tokens, num_new, num_samples, self._config.max_chunk)
        return self._kv.has_room(sample.holding, cached, price, self._reserved())

    def _reserved(self) -> list[int]:
        """Blocks of each group that running samples will need soon: for the rest of their prompts, and to decode."""
        layout, reserved = self._kv.layout, [len(self.decoding) // 2] * len(self._kv.pools)
        for sample in self.prefilling:
            prices = layout.price(len(sample.tokens), 1, 1, self._config.max_chunk)
            for group, price in enumerate(prices):
                num_held = sample.holding.num_blocks - sample.holding.firsts[group]
                reserved[group] += max(0, price - num_held)
        return reserved

    # ---- what users pay ----

    def charge_prompt(self, sample: Sample, num_tokens: int) -> None:
        """Up to that many tokens. Cached tokens, and those computed again after a preemption, are free."""
        if (cost := num_tokens - sample.num_charged) > 0:
            sample.num_charged = num_tokens
            self._users.charge(sample.user, cost)

    def charge_output(self, sample: Sample) -> None:
        """When a block fills or the sample leaves: once per token would take too long."""
        num_tokens = len(sample.tokens)
        cost = self._config.output_cost * (num_tokens - sample.num_charged)
        sample.num_charged = num_tokens
        self._users.charge(sample.user, cost)

    def audit(self, samples: list[Sample]) -> None:
        """samples: all that have not ended."""
        running = [sample for sample in samples if sample.state is not State.WAITING]
        assert {sample for sample in running if sample.state is State.PREFILLING} == set(self.prefilling)
        assert {sample for sample in running if sample.state is State.DECODING} == set(self.decoding)
        assert self.num_taken == sum(len(sample.covers) for sample in running) <= self.num_rows
        assert self.num_batch == sum(sample.is_batch for sample in running)
        assert self._starts.keys() <= {sample.key for sample in running}
        for user in {sample.user for sample in samples}:
            assert user.num_rows == sum(len(sample.covers) for sample in running if sample.user is user)
