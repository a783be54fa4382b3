"""A step's second part: whose prompts it reads, and how much of them."""

from collections.abc import Iterator

from surefoot.core import Chunk
from surefoot.kv import KvManager, Node
from surefoot.scheduler.budget import Budget
from surefoot.scheduler.charges import Charges
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.making_way import MakingWay
from surefoot.scheduler.queue import Pending
from surefoot.scheduler.room import Room
from surefoot.scheduler.rows import Rows
from surefoot.scheduler.sample import Sample, State
from surefoot.scheduler.step import Step

MOST_SCORED = 64  # prompt tokens in a chunk whose logprobs are wanted: each costs as much as a decoded one
MOST_IN_VAIN = 4  # samples that a step finds no room for before it stops looking


class Prompts:
    """Who goes next is for the queues and, one time in turn_every, for waiting alone; a chunk is as large as the
    budget, the blocks and what others compute at the same time allow."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KvManager,
        pending: Pending,
        rows: Rows,
        room: Room,
        way: MakingWay,
        charges: Charges,
    ) -> None:
        self._config = config
        self._kv = kv
        self._pending = pending
        self._rows = rows
        self._room = room
        self._way = way
        self._charges = charges
        self._since_turn = 0  # admissions
        self._since_eldest = 0  # steps whose first chunk was for another than who was admitted first

    def plan(self, step: Step, budget: Budget) -> None:
        """Chunks while the budget lasts. Once in a step is enough for each, whether it gets a chunk or not."""
        eldest, first, num_vain = next(self._begun(), None), None, 0
        owed = self._way.free_row(step)
        while not budget.is_spent and num_vain < MOST_IN_VAIN and (sample := owed or self._next(step)) is not None:
            owed = None
            self._pending.pass_over(sample)
            num_tokens = self._plan_chunk(step, sample, budget)
            num_vain += num_tokens == 0
            first = first or (sample if num_tokens else None)
        self._pending.show_passed_over()
        self._since_eldest = 0 if self._is_eldests_turn or first is eldest else self._since_eldest + 1

    # ---- who is next ----

    @property
    def _is_turn(self) -> bool:
        """Whether the next admission is for who has waited longest. Until it fits, nobody else is admitted."""
        return self._since_turn >= self._config.turn_every - 1

    @property
    def _is_eldests_turn(self) -> bool:
        """Whether the step's first chunk is for who was admitted first."""
        return self._since_eldest >= self._config.turn_every - 1

    def _next(self, step: Step) -> Sample | None:
        """Once an urgent prompt has a chunk, other users' add none: it would wait for the end of a longer step."""
        sample = self._in_turn() or self._in_order()
        return sample if sample is not None and (sample.is_urgent or not step.is_urgent) else None

    def _in_turn(self) -> Sample | None:
        """By waiting alone: for a row, or since it was admitted."""
        first = self._pending.turns.first() if self._is_turn else None
        if first is not None and not self._pending.is_passed_over(first):
            return first
        eldest = next(iter(self._rows.prefilling), None) if self._is_eldests_turn else None
        return None if eldest is None or self._pending.is_passed_over(eldest) else eldest

    def _in_order(self) -> Sample | None:
        """By the queues; among equals who is urgent goes first. Only of those who have begun, if nobody can be
        admitted."""
        if self._rows.are_all_taken or (self._is_turn and self._pending.turns):
            return min(self._begun(), key=self._place, default=None)
        return max(self._candidates(), key=lambda sample: (sample.is_urgent, self._num_known(sample)), default=None)

    def _leaves_rest(self, sample: Sample) -> bool:
        """Whether it has its turn before an urgent prompt, and so gets the least chunk only."""
        return not sample.is_urgent and any(one.is_urgent and self._has_row(one) for one in self._candidates())

    def _has_row(self, sample: Sample) -> bool:
        """Or could have one now."""
        return sample.state is not State.WAITING or self._rows.has_room(sample)

    def _candidates(self) -> list[Sample]:
        return self._pending.candidates(self._config.num_candidates, self._config.slack_tokens)

    def _begun(self) -> Iterator[Sample]:
        """In the order of admission."""
        return (sample for sample in self._rows.prefilling if not self._pending.is_passed_over(sample))

    def _place(self, sample: Sample) -> tuple[tuple[int, int], float, float]:
        start = self._config.slack_tokens if sample.is_urgent else 0
        return sample.band, sample.user.counter - start, sample.tag

    def _num_known(self, sample: Sample) -> int:
        """Blocks that need not be computed, among equals; who has begun goes before who has not."""
        if sample.state is State.PREFILLING:
            return self._config.max_context
        return len(self._room.match(sample))

    # ---- its chunk ----

    def _plan_chunk(self, step: Step, sample: Sample, budget: Budget) -> int:
        """The number of tokens it got: none if there is no room, or if another's chunk computes the same block."""
        nodes = self._room.match(sample)
        if self._is_being_filled(step, sample, nodes):
            return 0
        if sample.state is State.WAITING:
            if not (self._rows.has_room(sample) and self._room.is_enough(sample, nodes)):
                return 0
            self._admit(sample)
        if nodes:
            self._room.adopt(sample)
        start = sample.num_computed
        num_tokens = self._size(sample, budget)
        if not num_tokens or not self._way.grow_by_force(step, sample, start + num_tokens):
            return 0
        budget.spend(start, num_tokens)
        self._note_filling(step, sample, start + num_tokens)
        self._charges.prompt(sample, start + num_tokens)
        is_last = num_tokens == sample.num_left
        tokens = tuple(sample.tokens[start : start + num_tokens])
        covers = sample.covers if is_last else ()
        num_logits = int(is_last and not sample.request.embeds)
        step.is_urgent |= sample.is_urgent
        step.add(sample, Chunk(sample.key, start, tokens, sample.holding.tables, num_logits, covers))
        return num_tokens

    def _admit(self, sample: Sample) -> None:
        if self._is_turn and sample is self._pending.turns.first():
            self._since_turn = 0
            self._pending.turns.end_turn(sample.user)
        else:
            self._since_turn += 1
        self._rows.admit(sample)

    def _size(self, sample: Sample, budget: Budget) -> int:
        """What is left of an urgent prompt, where that is short: its user would wait for several steps' other rows. A
        chunk that is not the last ends with a block, where that shortens it by little, so that others can share it at
        once."""
        config, start, left = self._config, sample.num_computed, sample.num_left
        if sample.request.params.prompt_logprobs is not None:
            return min(budget.size(start, left), config.max_chunk, MOST_SCORED)
        if sample.is_urgent and left <= min(config.full_chunk, config.max_chunk, budget.room):
            return left
        num_tokens = min(budget.size(start, left), config.max_chunk)
        if num_tokens > config.min_chunk and self._leaves_rest(sample):
            num_tokens = config.min_chunk
        beyond = (start + num_tokens) % self._kv.layout.block_size
        return num_tokens - beyond if num_tokens < left and beyond <= num_tokens // 8 else num_tokens

    def _is_being_filled(self, step: Step, sample: Sample, nodes: list[Node]) -> bool:
        """Whether another's chunk computes its next block: then it waits, and finds it there in the next step."""
        if not step.filling:
            return False
        known = sample.holding.num_shared + len(nodes)
        keys = sample.known_keys(self._kv.layout.block_size)
        if known >= len(keys):
            return False
        node = nodes[-1] if nodes else sample.holding.cursor
        return any((node, namespace, keys[known]) in step.filling for namespace in (sample.holding.namespace, None))

    def _note_filling(self, step: Step, sample: Sample, num_tokens: int) -> None:
        holding, size = sample.holding, self._kv.layout.block_size
        first, keys = holding.num_shared, sample.full_keys(size)
        if self._kv.caching and num_tokens >= (first + 1) * size and first < len(keys):
            public = (first + 1) * size <= holding.num_public_tokens and holding.cursor.namespace is None
            namespace = None if public else holding.namespace
            step.filling.add((holding.cursor, namespace, keys[first]))
