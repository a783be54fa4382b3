"""The second phase of planning a step: which prompts it computes, and how many tokens of each."""

from collections.abc import Iterator
from dataclasses import dataclass

from surefoot.core import BAND_ROWS, Chunk, ChunkStates
from surefoot.kv import PrefixNode
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.queue import PromptQueue
from surefoot.scheduler.rows import PlannedStep, Preemption, RunningSamples
from surefoot.scheduler.sample import Sample, State

MAX_SCORED_TOKENS = 64  # tokens of a chunk with prompt logprobs: each costs as much as a decoded token
MAX_FAILED_TRIES = 4  # samples that get no chunk before a step stops looking
MAX_ROUNDED_UP_PRICE = 1.5  # highest price of a token, in rows, at which a chunk is rounded up to a full band


@dataclass
class PromptBudget:
    """How many prompt tokens a step may still take.

    The price of a token is in rows: 1 without context, 2 with `row_context` tokens before it.
    """

    target_rows: float  # rows that fit into the step's target time
    gap_rows: float  # rows beyond which neither the minimum nor a full band may take the step
    min_rows: float  # rows that the step takes even beyond its target
    min_tokens: int  # tokens that the step takes even beyond its target, whatever their price
    max_tokens: int  # limit on the step's prompt tokens
    num_step_tokens: int  # tokens of the step so far, decoding ones included
    row_context: float  # see SchedulerConfig

    @property
    def is_spent(self) -> bool:
        return self.max_tokens < 1 or max(self.target_rows, self.min_rows, self.min_tokens) < 1

    def chunk_size(self, start: int, num_left: int) -> int:
        """Tokens of a chunk that begins at `start`, of a prompt with `num_left` tokens to compute.

        A band of rows costs nearly the same however full it is. So a chunk that is not its prompt's last is rounded
        down to a full band. It is rounded up if the minimum would not fit otherwise, unless its tokens are expensive
        or the measured steps say that rows of a band do cost more (vector kernels have no bands).
        """
        price = self._price(start)
        minimum = max(int(self.min_rows / price), self.min_tokens, int(self.min_rows > 0))
        size = min(max(int(self.target_rows / price), minimum), self.max_tokens)
        if num_left <= size:
            return num_left
        rounded_down = size - (self.num_step_tokens + size) % BAND_ROWS
        may_round_up = price < MAX_ROUNDED_UP_PRICE
        if rounded_down >= max(minimum if may_round_up else 1, 1):
            return rounded_down
        if minimum and may_round_up and rounded_down + BAND_ROWS <= max(self.gap_rows, self.min_tokens):
            return min(rounded_down + BAND_ROWS, num_left, self.max_tokens)
        return size if minimum or self.num_step_tokens % BAND_ROWS else 0

    def spend(self, start: int, num_tokens: int) -> None:
        cost = num_tokens * self._price(start)
        self.target_rows -= cost
        self.gap_rows -= cost
        self.min_rows = max(0.0, self.min_rows - cost)
        self.min_tokens = max(0, self.min_tokens - num_tokens)
        self.max_tokens -= num_tokens
        self.num_step_tokens += num_tokens

    def _price(self, start: int) -> float:
        return 1.0 + start / self.row_context


class PromptPlanner:
    """Gives chunks of a step to prompts.

    The queue's order decides which sample is next. Every `turn_every`-th time, waiting time alone does. The size of the
    chunk depends on the budget, the free blocks and the other chunks of the step.
    """

    def __init__(
        self, config: SchedulerConfig, running: RunningSamples, queue: PromptQueue, preemption: Preemption
    ) -> None:
        self._config = config
        self._running = running
        self._queue = queue
        self._preemption = preemption
        self._admissions_since_turn = 0  # since the last admission by waiting time
        self._steps_since_oldest = 0  # steps whose first chunk was not for the sample that was admitted first

    def plan(self, step: PlannedStep, budget: PromptBudget) -> None:
        """Add chunks while the budget lasts. A sample is tried once in a step, whether it gets a chunk or not."""
        oldest, first, num_failed = next(self._prefilling(), None), None, 0
        reserved = self._preemption.free_row(step)
        while (
            not budget.is_spent
            and num_failed < MAX_FAILED_TRIES
            and (sample := reserved or self._next(step)) is not None
        ):
            reserved = None
            self._queue.skip(sample)
            num_tokens = self._plan_chunk(step, sample, budget)
            num_failed += num_tokens == 0 and sample.reading is None
            first = first or (sample if num_tokens else None)
        self._queue.restore_skipped()
        self._steps_since_oldest = (
            0 if self._is_oldest_samples_turn or first is oldest else self._steps_since_oldest + 1
        )

    # ---- which sample is next ----

    @property
    def _is_longest_waits_turn(self) -> bool:
        """Whether the next admission is for the sample that has waited longest. Until there is room for that sample, no
        other is admitted."""
        return self._admissions_since_turn >= self._config.turn_every - 1

    @property
    def _is_oldest_samples_turn(self) -> bool:
        """Whether the step's first chunk is for the sample that was admitted first."""
        return self._steps_since_oldest >= self._config.turn_every - 1

    def _next(self, step: PlannedStep) -> Sample | None:
        """The sample that is tried next. Once an urgent prompt has a chunk, only urgent ones follow: other chunks would
        make its step longer."""
        sample = self._next_by_waiting_time() or self._next_by_queue()
        return sample if sample is not None and (sample.is_urgent or not step.is_urgent) else None

    def _next_by_waiting_time(self) -> Sample | None:
        """The sample whose turn it is: the longest wait for a row, or the first admitted."""
        first = self._queue.waiting.first() if self._is_longest_waits_turn else None
        if first is not None and not self._queue.is_skipped(first):
            return first
        oldest = next(iter(self._running.prefilling), None) if self._is_oldest_samples_turn else None
        return None if oldest is None or self._queue.is_skipped(oldest) else oldest

    def _next_by_queue(self) -> Sample | None:
        """Urgent samples first among equals. If no sample can be admitted, only prefilling samples are considered."""
        if self._running.is_full or (self._is_longest_waits_turn and self._queue.waiting):
            return min(self._prefilling(), key=self._sort_key, default=None)
        return max(
            self._candidates(), key=lambda sample: (sample.is_urgent, self._num_cached_blocks(sample)), default=None
        )

    def _delays_urgent(self, sample: Sample) -> bool:
        """Whether an urgent prompt could run now. Another prompt's chunk is then as small as allowed."""
        return not sample.is_urgent and any(other.is_urgent and self._has_row(other) for other in self._candidates())

    def _has_row(self, sample: Sample) -> bool:
        """Whether it has a row, or could have one now."""
        return sample.state is not State.WAITING or self._running.has_row_for(sample)

    def _candidates(self) -> list[Sample]:
        return self._queue.candidates(self._config.num_candidates, self._config.slack_tokens)

    def _prefilling(self) -> Iterator[Sample]:
        """Prefilling samples that were not tried in this step, in order of admission."""
        return (sample for sample in self._running.prefilling if not self._queue.is_skipped(sample))

    def _sort_key(self, sample: Sample) -> tuple[tuple[int, int], float, float]:
        head_start = self._config.slack_tokens if sample.is_urgent else 0
        return sample.precedence, sample.user.counter - head_start, sample.tag

    def _num_cached_blocks(self, sample: Sample) -> int:
        """Blocks that the prefix cache holds. A prefilling sample counts as having most: it goes first."""
        if sample.state is State.PREFILLING:
            return self._config.max_context
        return len(self._running.blocks.match(sample))

    # ---- its chunk ----

    def _plan_chunk(self, step: PlannedStep, sample: Sample, budget: PromptBudget) -> int:
        """Plans a chunk and returns its size: 0 if there is no room, or if another chunk computes the same block."""
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
        """Whether the sample has a row. A waiting sample is admitted if there is room."""
        if sample.state is not State.WAITING:
            return True
        if not (self._running.has_row_for(sample) and self._running.has_blocks_for(sample, cached)):
            return False
        if self._running.blocks.is_reading(sample, cached):
            return False
        if self._is_longest_waits_turn and sample is self._queue.waiting.first():
            self._admissions_since_turn = 0
            self._queue.waiting.move_to_back(sample.user)
        else:
            self._admissions_since_turn += 1
        self._running.admit(sample)
        return True

    def _chunk_size(self, sample: Sample, budget: PromptBudget) -> int:
        """How many tokens the sample's next chunk has.

        A short rest of an urgent prompt is not split: each further step would make its user wait for all other rows.
        A chunk that is not the last ends with a full block if that shortens it by little, so that other samples can
        share the block at once.
        """
        config, start, num_left = self._config, sample.num_computed, sample.num_left
        if config.whole_prompts:
            return num_left if num_left <= budget.max_tokens else 0
        if sample.request.params.prompt_logprobs is not None:
            return min(budget.chunk_size(start, num_left), config.max_chunk, MAX_SCORED_TOKENS)
        if sample.is_urgent and num_left <= min(config.full_chunk, config.max_chunk, budget.max_tokens):
            return num_left
        num_tokens = min(budget.chunk_size(start, num_left), config.max_chunk)
        if num_tokens > config.min_chunk and self._delays_urgent(sample):
            num_tokens = config.min_chunk
        remainder = (start + num_tokens) % self._running.blocks.block_size
        return num_tokens - remainder if num_tokens < num_left and remainder <= num_tokens // 8 else num_tokens


def _make_chunk(sample: Sample, start: int, num_tokens: int, states: ChunkStates) -> Chunk:
    is_last = num_tokens == sample.num_left
    tokens = tuple(sample.tokens[start : start + num_tokens])
    sample_numbers = sample.sample_numbers if is_last else ()
    num_logits = int(is_last and not sample.request.embeds)
    return Chunk(sample.key, start, tokens, sample.holding.tables, num_logits, sample_numbers, states)
