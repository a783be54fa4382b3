"""The plainest planner: first come, first served; blocks for the longest possible answer are set aside at the start.

It shares no prefixes and preempts nobody. It stands behind the same plans and results as any other planner.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surefoot.core import (
    BlockTable,
    Chunk,
    Delta,
    FinishReason,
    Load,
    Output,
    Request,
    RowStart,
    SampleKey,
    StepPlan,
    StepResult,
)


class Refused(ValueError):
    """The request can never run here."""


@dataclass(frozen=True)
class FifoConfig:
    """windows, num_blocks: of each group of layers. max_context: tokens of one sample, prompt and answer.

    max_chunk: tokens of one sample in one step. max_step_tokens: prompt tokens of all in one step.
    """

    windows: Sequence[int]
    num_blocks: Sequence[int]
    block_size: int
    max_context: int
    max_running: int = 8
    max_chunk: int = 512
    max_step_tokens: int = 512

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def price(self, num_tokens: int) -> list[int]:
        """Blocks of each group that a sample of so many tokens takes; a window's come round again and again."""
        blocks = self.blocks_for(num_tokens)
        return [
            min(blocks, self.blocks_for(window - 1 + self.max_chunk) + 1) if window else blocks
            for window in self.windows
        ]


class _Sample:
    def __init__(self, request: Request, number: int, end: int) -> None:
        self.request = request
        self.key = SampleKey(request.id, number)
        self.tokens = list(request.prompt)
        self.end = end  # tokens at which it ends for length
        self.num_computed = 0
        self.blocks: list[list[int]] = []  # by group
        self.tables: tuple[BlockTable, ...] = ()

    def next_chunk(self, max_tokens: int) -> Chunk:
        start, left = self.num_computed, len(self.tokens) - self.num_computed
        tokens = tuple(self.tokens[start : start + min(left, max_tokens)])
        is_last = len(tokens) == left
        return Chunk(self.key, start, tokens, self.tables, int(is_last), (self.key.sample,) if is_last else ())

    def accept(self, drawn: tuple[int, ...]) -> Delta:
        (token,) = drawn
        if token < 0:
            return Delta(self.key, (), FinishReason.ERROR)
        self.tokens.append(token)
        if token in self.request.stop_ids:
            return Delta(self.key, drawn, FinishReason.STOP)
        return Delta(self.key, drawn, FinishReason.LENGTH if len(self.tokens) >= self.end else None)


class FifoPlanner:
    def __init__(self, config: FifoConfig) -> None:
        self.config = config
        self._free = [list(range(count - 1, -1, -1)) for count in config.num_blocks]
        self._waiting: deque[_Sample] = deque()
        self._running: dict[SampleKey, _Sample] = {}
        self._cancelled: list[str] = []
        self._ends: list[SampleKey] = []
        self._planned: list[tuple[_Sample, Chunk]] = []

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running or self._cancelled)

    def load(self) -> Load:
        counts = zip(self._free, self.config.num_blocks, strict=True)
        use = max(1 - len(free) / count for free, count in counts)
        return Load(len(self._running), len(self._waiting), use)

    # ---- requests ----

    def add(self, request: Request) -> None:
        limit, num_prompt, context = request.params.max_tokens, len(request.prompt), self.config.max_context
        if num_prompt >= context:
            raise Refused(f"the prompt has {num_prompt} tokens, the context holds {context}: shorten the prompt")
        if limit is not None and num_prompt + limit > context:
            raise Refused(
                f"the prompt has {num_prompt} tokens and max_tokens is {limit}, the context holds {context}: "
                f"set max_tokens to {context - num_prompt} at most"
            )
        if any(one.key.request == request.id for one in self._all()):
            raise Refused(f"there is a request {request.id!r} already: give it another id")
        end = context if limit is None else num_prompt + limit
        price = zip(self.config.price(end), self.config.num_blocks, strict=True)
        if any(wanted > there for wanted, there in price):
            raise Refused(f"{end} tokens need more memory than is set aside: lower max_tokens")
        self._waiting.extend(_Sample(request, number, end) for number in range(request.params.n))

    def cancel(self, request_id: str) -> None:
        self._cancelled.append(request_id)

    def finish(self, key: SampleKey) -> None:
        sample = next((one for one in self._all() if one.key == key), None)
        if sample is not None:
            self._end(sample)

    def _all(self) -> Iterator[_Sample]:
        yield from self._running.values()
        yield from self._waiting

    def _end(self, sample: _Sample) -> None:
        if self._running.pop(sample.key, None) is None:
            self._waiting.remove(sample)
            return
        for free, blocks in zip(self._free, sample.blocks, strict=True):
            free.extend(reversed(blocks))
        self._ends.append(sample.key)

    # ---- a step ----

    def schedule(self, now: float = 0.0) -> StepPlan:
        dropped = self._drop(now)
        ends, self._ends = self._ends, []
        starts = self._admit()
        self._planned = list(self._chunks())
        return StepPlan([chunk for _, chunk in self._planned], (), starts, ends, dropped)

    def _drop(self, now: float) -> list[Delta]:
        dropped = []
        for sample in list(self._all()):
            deadline = sample.request.deadline
            if sample.request.id in self._cancelled:
                dropped.append(Delta(sample.key, (), FinishReason.CANCELLED))
            elif deadline is not None and deadline <= now:
                dropped.append(Delta(sample.key, (), FinishReason.DEADLINE))
            else:
                continue
            self._end(sample)
        self._cancelled.clear()
        return dropped

    def _admit(self) -> list[RowStart]:
        starts = []
        while self._waiting and len(self._running) < self.config.max_running:
            price = self.config.price(self._waiting[0].end)
            if any(len(free) < count for free, count in zip(self._free, price, strict=True)):
                break
            sample = self._waiting.popleft()
            sample.blocks = [[free.pop() for _ in range(count)] for free, count in zip(self._free, price, strict=True)]
            num_blocks = self.config.blocks_for(sample.end)
            sample.tables = tuple(tuple(own[i % len(own)] for i in range(num_blocks)) for own in sample.blocks)
            self._running[sample.key] = sample
            starts.append(RowStart(sample.key, sample.request, tuple(sample.tokens)))
        return starts

    def _chunks(self) -> Iterator[tuple[_Sample, Chunk]]:
        """Decoding first; what is left of the step goes to prompts."""
        prompts = [one for one in self._running.values() if len(one.tokens) - one.num_computed > 1]
        for sample in self._running.values():
            if len(sample.tokens) - sample.num_computed == 1:
                yield sample, sample.next_chunk(1)
        budget = self.config.max_step_tokens
        for sample in prompts:
            if budget <= 0:
                break
            chunk = sample.next_chunk(min(budget, self.config.max_chunk))
            budget -= len(chunk.tokens)
            yield sample, chunk

    def commit(self, result: StepResult) -> list[Delta]:
        outputs, deltas = iter(result.outputs), list[Delta]()
        for sample, chunk in self._planned:
            sample.num_computed += len(chunk.tokens)
            if chunk.samples:
                deltas.append(self._take(sample, next(outputs)))
        self._planned = []
        return deltas

    def _take(self, sample: _Sample, output: Output) -> Delta:
        if output.key != sample.key:
            raise ValueError(f"the output of {output.key} where that of {sample.key} belongs")
        delta = sample.accept(output.tokens)
        if delta.reason is not None:
            self._end(sample)
        return delta
