"""Executes a step's plan: adds and removes rows, copies blocks, runs the chunks and samples tokens."""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Protocol

import numpy as np

from surefoot.core import NO_BLOCK, BlockCopy, BlockTable, Chunk, Output, RowStart, SampleKey, StepPlan, StepResult
from surefoot.models import Model
from surefoot.ops import Backend, Stopped
from surefoot.ops.arrays import F32, I64
from surefoot.runner.kv_store import KvStore
from surefoot.runner.results import DrawState, PromptLogprobs, StatePool, Verification, make_pool
from surefoot.runner.runner import FlatStep, StepStates
from surefoot.sampling import Drawn, Grammars, Sampler, TokenLogprobs
from surefoot.speculate import DraftOutcome, SampledTokens, Speculator, TargetRow

BROKEN = -1  # stands for a token that could not be drawn
SCORED_ROWS = 16  # rows of prompt logits computed at once: each is as wide as the vocabulary
MASKS_S = 0.02  # seconds that a step waits for grammar masks, over all its requests
SETTLE_S = 0.005  # seconds that a step leaves the cores to grammar masks, which would slow down the next pass

Draws = list[list[Drawn]]  # of one chunk: the tokens drawn for each of its samples


@dataclass(frozen=True)
class Executed:
    """The outcome of a step's plan."""

    result: StepResult
    logprobs: Mapping[SampleKey, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    """Logprobs of each output's tokens, if requested."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Error messages by request id."""
    verified: Mapping[SampleKey, DraftOutcome] = field(default_factory=dict)
    """How many drafted tokens were accepted, for samples with drafts."""
    embeddings: Mapping[SampleKey, tuple[float, ...]] = field(default_factory=dict)
    """Embeddings of the prompts that ended in this step, if requested."""
    prompt_logprobs: Mapping[SampleKey, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    """Logprobs of the prompts that ended in this step, if requested."""


class Row:
    """A running sample: its index in the block tables, and the state that its draws depend on."""

    def __init__(self, start: RowStart, index: int, grammars: Grammars | None) -> None:
        self.request = start.request
        self.stops = start.request.stop_ids
        self.index = index
        self.tables: tuple[BlockTable, ...] = ()
        self.num_tokens = len(start.tokens)
        num_prompt, params = len(self.request.prompt), self.request.params
        self.first_end = num_prompt + params.min_tokens
        self.end = None if params.max_tokens is None else num_prompt + params.max_tokens
        self.state = DrawState(params, start.tokens[:num_prompt], start.tokens[num_prompt:], grammars)
        self.pool = make_pool(self.request)
        count = params.prompt_logprobs
        self.scores = None if count is None else PromptLogprobs(self.request.prompt, count)

    def verify(self, chunk: Chunk, first_row: int) -> Verification:
        return Verification(chunk, self.request.params, self.stops, first_row, self.state, self.first_end)

    def append(self, tokens: Sequence[int]) -> None:
        self.num_tokens += len(tokens)
        self.state.add(*tokens)

    def max_draft(self, limit: int) -> int:
        """The longest draft, at most `limit` tokens: the token after the draft must be within max_tokens."""
        return limit if self.end is None else min(limit, self.end - self.num_tokens - 1)


class Tables:
    """The block tables of all rows, by window: [rows, blocks]. Entries after a row's last block are stale."""

    def __init__(self, windows: Sequence[int], width: int) -> None:
        self._windows = windows
        self._arrays = [np.zeros((16, width), np.int64) for _ in windows]
        self._free = list(range(15, -1, -1))
        self._last_indices: list[int] = []  # rows of the last call of `of`
        self._last_tables: dict[int, I64] = {}  # its result

    def allocate(self) -> int:
        """The index of a free row."""
        if not self._free:
            size = len(self._arrays[0])
            self._arrays = [np.concatenate([array, np.zeros_like(array)]) for array in self._arrays]
            self._free = list(range(2 * size - 1, size - 1, -1))
        return self._free.pop()

    def release(self, index: int) -> None:
        self._free.append(index)

    def update(self, row: Row, tables: tuple[BlockTable, ...]) -> None:
        """Write a row's new tables. A table that is the same object as before is skipped."""
        self._last_indices = []
        for array, before, table in zip_longest(self._arrays, row.tables, tables):
            if table is not before:
                first = 0 if before is None else _num_common(before, table)
                array[row.index, first : len(table)] = table[first:]
        row.tables = tables

    def of(self, rows: Sequence[Row]) -> dict[int, I64]:
        """The tables of these rows, as wide as the longest; the same arrays until a table changes."""
        indices = [row.index for row in rows]
        if indices != self._last_indices:
            width = max(len(row.tables[0]) for row in rows)
            pairs = zip(self._windows, self._arrays, strict=True)
            self._last_tables = {window: array[:, :width].take(indices, axis=0) for window, array in pairs}
            self._last_indices = indices
        return self._last_tables


def _ms_since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1000


def _num_common(before: BlockTable, table: BlockTable) -> int:
    """Length of a common prefix: the whole old table, to which entries are mostly appended, or 0."""
    return len(before) if table[: len(before)] == before else 0


class ForwardPass(Protocol):
    """The part of a runner that the executor uses."""

    @property
    def backend(self) -> Backend: ...
    @property
    def model(self) -> Model: ...
    @property
    def kv(self) -> KvStore: ...
    @property
    def max_chunk(self) -> int: ...
    def forward(self, step: FlatStep) -> F32: ...
    def hidden(self, num_rows: int) -> F32:
        """The rows that drafts begin from, for the last pass's rows of logits."""

    def normed(self, first: int, count: int) -> F32:
        """Hidden states of the last pass after the final norm, for `count` rows from `first` on."""

    def logits(self, first: int, count: int) -> F32:
        """Logits of the last pass for `count` rows from `first` on, requested by the step or not."""


class Executor:
    """Executes plans one after the other. A request that fails does not fail others in its batch."""

    def __init__(
        self, runner: ForwardPass, grammars: Grammars | None = None, speculator: Speculator | None = None
    ) -> None:
        self.runner = runner
        self._grammars = grammars
        self._speculator = speculator
        self._windows = runner.model.config.windows  # by group of the plan
        self._has_states = bool(runner.model.config.states)
        self._sampler = Sampler(runner.backend)
        self._rows: dict[SampleKey, Row] = {}
        self._tables = Tables(self._windows, runner.kv.table_width)
        self._last_rows: dict[SampleKey, int] = {}  # row of the last pass's logits that gave a sample's last token

    def execute(self, plan: StepPlan) -> Executed:
        begin = time.perf_counter()
        self._change_rows(plan)
        self._copy(plan.copies)
        failures: dict[str, str] = {}
        deferred: set[SampleKey] = set()
        try:
            drawn = self._run(plan.chunks, failures, deferred) if plan.chunks else []
        except Stopped:
            return Executed(StepResult((), _ms_since(begin), stopped=True))
        for chunk, draws in zip(plan.chunks, drawn, strict=True):
            self._append(chunk, draws)
        _settle([self._rows[chunk.key].state for chunk in plan.chunks], SETTLE_S)
        verified = _verified(plan.chunks, drawn, failures, deferred)
        drafts = self._speculate(plan, drawn, verified, _ms_since(begin))
        outputs, logprobs = [], {}
        embeddings = self._embeddings(plan.chunks, failures)
        for chunk, draws in zip(plan.chunks, drawn, strict=True):
            for number, sample in zip(chunk.samples, draws, strict=True):
                key = SampleKey(chunk.key.request, number)
                tokens = () if key in embeddings else tuple([draw.token for draw in sample])
                outputs.append(Output(key, tokens, drafts.get(key, ())))
                if sample[0].logprobs is not None:
                    logprobs[key] = tuple([draw.logprobs for draw in sample if draw.logprobs is not None])
        failed = [chunk.key for chunk in plan.chunks if chunk.key.request in failures] if failures else ()
        result, scores = StepResult(outputs, _ms_since(begin), failed, deferred), self._prompt_logprobs(plan.chunks)
        return Executed(result, logprobs, failures, verified, embeddings, scores)

    def stop(self, stop: bool = True) -> None:
        """From any thread: end the pass under way and all later ones, until stop(False)."""
        self.runner.backend.stop(stop)

    def clear(self) -> None:
        for key, row in self._rows.items():
            row.state.close()
            if self._speculator is not None:
                self._speculator.end(key)
        self._rows.clear()
        self._tables = Tables(self._windows, self.runner.kv.table_width)

    def _change_rows(self, plan: StepPlan) -> None:
        for key in plan.ends:
            row = self._rows.pop(key)
            row.state.close()
            self._tables.release(row.index)
            if self._speculator is not None:
                self._speculator.end(key)
        for start in plan.starts:
            self._rows[start.key] = Row(start, self._tables.allocate(), self._grammars)
            if self._speculator is not None:
                self._speculator.start(*start)

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        for group, source, target in copies:
            self.runner.kv.copy_block(self.runner.backend, self._windows[group], source, target)

    def _run(self, chunks: Sequence[Chunk], failures: dict[str, str], deferred: set[SampleKey]) -> list[Draws]:
        """The draws of all chunks, which run as one batch. If the batch fails, they run one by one to find the chunk at
        fault: draws do not depend on other chunks, and the same keys and values are written again."""
        try:
            return self._run_together(chunks, failures, deferred)
        except Stopped:
            raise
        except Exception as error:
            if len(chunks) > 1:
                drawn = [self._run([chunk], failures, deferred)[0] for chunk in chunks]
                self._last_rows = {}  # only the last chunk's hidden states are left
                return drawn
            failures[chunks[0].key.request] = f"{type(error).__name__}: {error}"
            return [[[Drawn(BROKEN)]] * len(chunks[0].samples)]

    def _run_together(self, chunks: Sequence[Chunk], failures: dict[str, str], deferred: set[SampleKey]) -> list[Draws]:
        """Adds requests whose grammars failed to `failures`, and chunks whose masks were not ready to `deferred`."""
        rows, tokens, num_logits = list[Row](), list[int](), 0
        verifications: list[Verification | None] = []
        for chunk in chunks:
            row = self._rows[chunk.key]
            if row.tables is not chunk.tables:
                self._tables.update(row, chunk.tables)
            rows.append(row)
            tokens += chunk.tokens
            verifications.append(row.verify(chunk, num_logits) if chunk.num_logits else None)
            num_logits += chunk.num_logits
        logits = self.runner.forward(
            FlatStep(
                tokens,
                [chunk.start for chunk in chunks],
                [len(chunk.tokens) for chunk in chunks],
                [chunk.num_logits for chunk in chunks],
                self._tables.of(rows),
                _states(chunks) if self._has_states else None,
            )
        )
        self._pool(chunks, rows)
        self._draw(logits, [verification for verification in verifications if verification is not None])
        self._last_rows, drawn = {}, list[Draws]()
        for chunk, verification in zip(chunks, verifications, strict=True):
            if verification is not None and verification.drawn[0]:
                self._last_rows[chunk.key] = verification.last_row
                drawn.append(verification.drawn)
                continue
            drawn.append([[Drawn(BROKEN)]] * len(chunk.samples))
            if verification is not None and verification.failure is not None:
                failures[chunk.key.request] = verification.failure
            elif verification is not None:
                deferred.add(chunk.key)
        return drawn

    def _pool(self, chunks: Sequence[Chunk], rows: Sequence[Row]) -> None:
        """Add the chunks' hidden states to embeddings and prompt logprobs."""
        first = 0
        for chunk, row in zip(chunks, rows, strict=True):
            if row.pool is not None:
                self._pool_chunk(row.pool, chunk, first)
            if row.scores is not None:
                self._score(row.scores, chunk, first)
            first += len(chunk.tokens)

    def _pool_chunk(self, pool: StatePool, chunk: Chunk, first: int) -> None:
        if wanted := pool.wanted(chunk.start, len(chunk.tokens)):
            pool.add(wanted.start, self.runner.normed(first + wanted.start - chunk.start, len(wanted)))

    def _score(self, scores: PromptLogprobs, chunk: Chunk, first: int) -> None:
        wanted = scores.wanted(chunk.start, len(chunk.tokens))
        for start in range(wanted.start, wanted.stop, SCORED_ROWS):
            count = min(SCORED_ROWS, wanted.stop - start)
            scores.add(self.runner.backend, self.runner.logits(first + start - chunk.start, count))

    def _prompt_logprobs(self, chunks: Sequence[Chunk]) -> dict[SampleKey, tuple[TokenLogprobs, ...]]:
        """Prompt logprobs of the requests that want them and draw their first token."""
        logprobs: dict[SampleKey, tuple[TokenLogprobs, ...]] = {}
        for chunk in chunks:
            row = self._rows[chunk.key]
            if row.scores is not None and chunk.samples and chunk.start < len(row.request.prompt):
                logprobs[chunk.key] = row.scores.logprobs()
        return logprobs

    def _embeddings(self, chunks: Sequence[Chunk], failures: Mapping[str, str]) -> dict[SampleKey, tuple[float, ...]]:
        """Embeddings of the requests that want one and whose prompt has ended, unless they are not finite."""
        embeddings: dict[SampleKey, tuple[float, ...]] = {}
        for chunk in chunks:
            pool = self._rows[chunk.key].pool
            if pool is not None and chunk.samples and chunk.key.request not in failures:
                vector = self.runner.model.project(self.runner.backend, pool.vector())
                embeddings |= {chunk.key: tuple(vector.tolist())} if np.isfinite(vector).all() else {}
        return embeddings

    def _draw(self, logits: F32, verifications: Sequence[Verification]) -> None:
        """Draw tokens until every draft is verified.

        One round is enough unless penalties or grammars depend on the draft's tokens. A failure or a stop in a later
        round ends verification early: the next step has no drafts and finds the failing request.
        """
        deadline = time.perf_counter() + MASKS_S
        self._draw_once(logits, verifications, deadline)
        with suppress(Exception):
            while verifications := [verification for verification in verifications if not verification.is_done]:
                self._draw_once(logits, verifications, deadline)

    def _draw_once(self, logits: F32, verifications: Sequence[Verification], deadline: float) -> None:
        states = [verification.state for verification in verifications]
        _settle(states, deadline - time.perf_counter())
        waits_for_slow = len(_awaited(states)) == len(states)
        ready = [
            verification
            for verification in verifications
            if verification.prepare(deadline if waits_for_slow or not verification.state.is_slow else 0.0)
        ]
        draws = [verification.draws() for verification in ready]
        batch = list(chain.from_iterable(draws))
        drawn = iter(self._sampler.draw(logits, batch) if batch else [])
        for verification, requested in zip(ready, draws, strict=True):
            verification.take([next(drawn) for _ in requested])

    def _append(self, chunk: Chunk, draws: Draws) -> None:
        """Append the drawn tokens to the chunk's row. The chunk's other samples start later, with their tokens."""
        for number, sample in zip(chunk.samples, draws, strict=True):
            if number == chunk.key.sample:
                self._rows[chunk.key].append([draw.token for draw in sample if draw.token != BROKEN])

    def _speculate(
        self, plan: StepPlan, drawn: Sequence[Draws], verified: Mapping[SampleKey, DraftOutcome], elapsed_ms: float
    ) -> Mapping[SampleKey, tuple[int, ...]]:
        """Drafts for the samples that continue."""
        if self._speculator is None or not plan.chunks:
            return {}
        self._speculator.observe(plan.num_tokens, elapsed_ms, verified)
        hidden = self.runner.hidden(sum(chunk.num_logits for chunk in plan.chunks))
        sampled: dict[SampleKey, SampledTokens] = {}
        max_depths: dict[SampleKey, int] = {}
        num_other_tokens = 0
        for chunk, draws in zip(plan.chunks, drawn, strict=True):
            num_other_tokens += len(chunk.tokens) - chunk.num_logits
            for number, sample in zip(chunk.samples, draws, strict=True):
                if number == chunk.key.sample and sample[-1].token != BROKEN:
                    row, last_row = self._rows[chunk.key], self._last_rows.get(chunk.key)
                    target = None if last_row is None else TargetRow(hidden[last_row], chunk.tables)
                    sampled[chunk.key] = SampledTokens([draw.token for draw in sample], target, row.state.forced)
                    if sample[-1].token not in row.stops:
                        max_depths[chunk.key] = row.max_draft(self.runner.max_chunk - 1)
        return self._speculator.propose(sampled, max_depths, num_other_tokens)


def _states(chunks: Sequence[Chunk]) -> StepStates:
    saves: list[int] = []
    for chunk in chunks:
        slots = [NO_BLOCK] * len(chunk.tokens)
        for row, slot in chunk.states.saves:
            slots[row] = slot
        saves += slots
    return StepStates([chunk.states.load for chunk in chunks], saves)


def _settle(states: Sequence[DrawState], seconds: float) -> None:
    """Wait at most `seconds` for grammar masks: for the grammar that has taken longest so far."""
    awaited = _awaited(states)
    costs = [(constraint.spent_s, number) for number, state in enumerate(awaited) if (constraint := state.constraint)]
    if costs:
        awaited[max(costs)[1]].settle(seconds)


def _awaited(states: Sequence[DrawState]) -> Sequence[DrawState]:
    """The states whose masks a step waits for. It waits for slow grammars only if the step has no other samples."""
    return [state for state in states if not state.is_slow] or states


def _verified(
    chunks: Sequence[Chunk], drawn: Sequence[Draws], failures: Mapping[str, str], deferred: Collection[SampleKey]
) -> dict[SampleKey, DraftOutcome]:
    """The outcome of each chunk's draft, for chunks with drafts."""
    return {
        chunk.key: DraftOutcome(chunk.num_logits - 1, len(draws[0]) - 1)
        for chunk, draws in zip(chunks, drawn, strict=True)
        if chunk.num_logits > 1 and chunk.key.request not in failures and chunk.key not in deferred
    }
