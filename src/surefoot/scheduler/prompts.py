"""A step's second phase: which prompts it computes, and how much of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from surefoot.core import BAND_ROWS, Chunk, ChunkStates
from surefoot.kv import PrefixNode
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.preemption import Preemption
from surefoot.scheduler.queue import PromptQueue
from surefoot.scheduler.rows import PlannedStep, RunningSamples
from surefoot.scheduler.sample import Sample, State

MOST_SCORED = 64  # prompt tokens in a chunk whose logprobs are wanted: each costs as much as a decoded token
MOST_IN_VAIN = 4  # samples without room before a step stops looking
DEAREST_FILLED = 1.5  # highest price of a token, in rows, at which a band is filled beyond the budget


@dataclass
class PromptBudget:
    """How many prompt tokens a step may still take. A token's price is in rows: 1 without context, 2 with `row_context`
    tokens before it."""

    tokens: float  # rows that end in time
    least: float  # rows that the step takes in any case
    least_rows: int  # tokens that it takes in any case, whatever their price
    room: int  # tokens that it takes at most
    num_rows: int  # tokens of the step so far, decoding ones included
    row_context: float  # see SchedulerConfig

    @property
    def is_spent(self) -> bool:
        return self.room < 1 or max(self.tokens, self.least, self.least_rows) < 1

    def chunk_size(self, start: int, num_left: int) -> int:
        """Tokens of a chunk that begins at `start`, of a prompt with `num_left` tokens to compute.

        A band of rows costs nearly the same however full it is. So a chunk that is not its prompt's last ends with a
        full band: with the one above if the least chunk would not fit below, unless its tokens are dear.
        """
        price = self._price(start)
        least = max(int(self.least / price), self.least_rows, int(self.least > 0))
        wanted = min(max(int(self.tokens / price), least), self.room)
        if num_left <= wanted:
            return num_left
        below = wanted - (self.num_rows + wanted) % BAND_ROWS
        is_filled = price < DEAREST_FILLED
        if below >= max(least if is_filled else 1, 1):
            return below
        if least and is_filled:
            return min(below + BAND_ROWS, num_left, self.room)
        return wanted if least or self.num_rows % BAND_ROWS else 0

    def spend(self, start: int, num_tokens: int) -> None:
        cost = num_tokens * self._price(start)
        self.tokens -= cost
        self.least = max(0.0, self.least - cost)
        self.least_rows = max(0, self.least_rows - num_tokens)
        self.room -= num_tokens
        self.num_rows += num_tokens

    def _price(self, start: int) -> float:
        return 1.0 + start / self.row_context


class PromptPlanner:
    """The queue's order decides which sample is next; every `turn_every`-th time waiting time alone does. The budget,
    the blocks and the other chunks of the step decide how large its chunk is."""

    def __init__(
        self, config: SchedulerConfig, running: RunningSamples, queue: PromptQueue, preemption: Preemption
    ) -> None:
        self._config = config
        self._running = running
        self._queue = queue
        self._preemption = preemption
        self._since_turn = 0  # admissions
        self._since_oldest = 0  # steps whose first chunk was not for the sample that was admitted first

    def plan(self, step: PlannedStep, budget: PromptBudget) -> None:
        """Add chunks while the budget lasts. A sample is tried once in a step, whether it gets a chunk or not."""
        oldest, first, num_in_vain = next(self._begun(), None), None, 0
        owed = self._preemption.free_row(step)
        while not budget.is_spent and num_in_vain < MOST_IN_VAIN and (sample := owed or self._next(step)) is not None:
            owed = None
            self._queue.skip(sample)
            num_tokens = self._plan_chunk(step, sample, budget)
            num_in_vain += num_tokens == 0
            first = first or (sample if num_tokens else None)
        self._queue.restore_skipped()
        self._since_oldest = 0 if self._is_oldests_turn or first is oldest else self._since_oldest + 1

    # ---- which sample is next ----

    @property
    def _is_turn(self) -> bool:
        """Whether the next admission is for the sample that has waited longest. Until it fits, no other is admitted."""
        return self._since_turn >= self._config.turn_every - 1

    @property
    def _is_oldests_turn(self) -> bool:
        """Whether the step's first chunk is for the sample that was admitted first."""
        return self._since_oldest >= self._config.turn_every - 1

    def _next(self, step: PlannedStep) -> Sample | None:
        """Once an urgent prompt has a chunk, only urgent ones follow: it would wait for the end of a longer step."""
        sample = self._in_turn() or self._in_order()
        return sample if sample is not None and (sample.is_urgent or not step.is_urgent) else None

    def _in_turn(self) -> Sample | None:
        """By waiting time alone: for a row, or since its admission."""
        first = self._queue.turns.first() if self._is_turn else None
        if first is not None and not self._queue.is_skipped(first):
            return first
        oldest = next(iter(self._running.prefilling), None) if self._is_oldests_turn else None
        return None if oldest is None or self._queue.is_skipped(oldest) else oldest

    def _in_order(self) -> Sample | None:
        """By the queue, urgent samples first among equals. Only of those that have begun, if none can be admitted."""
        if self._running.is_full or (self._is_turn and self._queue.turns):
            return min(self._begun(), key=self._place, default=None)
        return max(self._candidates(), key=lambda sample: (sample.is_urgent, self._num_cached(sample)), default=None)

    def _delays_urgent(self, sample: Sample) -> bool:
        """Whether it has its turn before an urgent prompt, and so gets only the least chunk."""
        return not sample.is_urgent and any(other.is_urgent and self._has_row(other) for other in self._candidates())

    def _has_row(self, sample: Sample) -> bool:
        """Or could have one now."""
        return sample.state is not State.WAITING or self._running.has_row_for(sample)

    def _candidates(self) -> list[Sample]:
        return self._queue.candidates(self._config.num_candidates, self._config.slack_tokens)

    def _begun(self) -> Iterator[Sample]:
        """In the order of admission."""
        return (sample for sample in self._running.prefilling if not self._queue.is_skipped(sample))

    def _place(self, sample: Sample) -> tuple[tuple[int, int], float, float]:
        start = self._config.slack_tokens if sample.is_urgent else 0
        return sample.precedence, sample.user.counter - start, sample.tag

    def _num_cached(self, sample: Sample) -> int:
        """Blocks that need no computing; more than any prompt has for a sample that has begun, which goes first."""
        if sample.state is State.PREFILLING:
            return self._config.max_context
        return len(self._running.blocks.match(sample))

    # ---- its chunk ----

    def _plan_chunk(self, step: PlannedStep, sample: Sample, budget: PromptBudget) -> int:
        """Tokens of its chunk: 0 if there is no room, or if another chunk computes the same block."""
        running, blocks = self._running, self._running.blocks
        cached = blocks.match(sample)
        if blocks.is_being_computed(step, sample, cached) or not self._is_admitted(sample, cached):
            return 0
        if cached:
            blocks.adopt(sample)
        start = sample.num_computed
        num_tokens = self._chunk_size(sample, budget)
        if not num_tokens or not self._preemption.grow(step, sample, start + num_tokens):
            return 0
        budget.spend(start, num_tokens)
        blocks.note_computing(step, sample, start + num_tokens)
        running.charge_prompt(sample, start + num_tokens)
        step.is_urgent |= sample.is_urgent
        step.add(sample, _make_chunk(sample, start, num_tokens, blocks.save_prompt(sample, num_tokens)))
        return num_tokens

    def _is_admitted(self, sample: Sample, cached: list[PrefixNode]) -> bool:
        """Whether it has a row; a waiting sample gets one if there is room for it."""
        if sample.state is not State.WAITING:
            return True
        if not (self._running.has_row_for(sample) and self._running.has_blocks_for(sample, cached)):
            return False
        if self._is_turn and sample is self._queue.turns.first():
            self._since_turn = 0
            self._queue.turns.end_turn(sample.user)
        else:
            self._since_turn += 1
        self._running.admit(sample)
        return True

    def _chunk_size(self, sample: Sample, budget: PromptBudget) -> int:
        """The rest of an urgent prompt if it is short: in several steps its user would wait for everybody else's rows
        again and again. A chunk that is not the last ends with a block if that shortens it by little, so that others
        can share the block at once."""
        config, start, num_left = self._config, sample.num_computed, sample.num_left
        if sample.request.params.prompt_logprobs is not None:
            return min(budget.chunk_size(start, num_left), config.max_chunk, MOST_SCORED)
        if sample.is_urgent and num_left <= min(config.full_chunk, config.max_chunk, budget.room):
            return num_left
        num_tokens = min(budget.chunk_size(start, num_left), config.max_chunk)
        if num_tokens > config.min_chunk and self._delays_urgent(sample):
            num_tokens = config.min_chunk
        beyond = (start + num_tokens) % self._running.blocks.block_size
        return num_tokens - beyond if num_tokens < num_left and beyond <= num_tokens // 8 else num_tokens


def _make_chunk(sample: Sample, start: int, num_tokens: int, states: ChunkStates) -> Chunk:
    is_last = num_tokens == sample.num_left
    tokens = tuple(sample.tokens[start : start + num_tokens])
    covers = sample.covers if is_last else ()
    num_logits = int(is_last and not sample.request.embeds)
    return Chunk(sample.key, start, tokens, sample.holding.tables, num_logits, covers, states)
