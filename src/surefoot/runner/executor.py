"""Executes a step's plan: rows come and go, blocks are copied, chunks run, samples draw their tokens."""

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
from surefoot.runner.passes import FlatStep, StepStates
from surefoot.runner.pooling import MeanPool
from surefoot.runner.scoring import PromptLogprobs
from surefoot.runner.verification import DrawState, Verification
from surefoot.sampling import Drawn, Grammars, Sampler, TokenLogprobs
from surefoot.speculate import DraftOutcome, SampledTokens, Speculator

BROKEN = -1  # a token that no vocabulary has
SCORED_ROWS = 16  # rows of prompt logits at once: each is as wide as the vocabulary
MASKS_S = 0.02  # seconds that a step waits for masks, of all its requests together
SETTLE_S = 0.005  # seconds that it leaves the cores to the masks, which would slow down the next pass

Draws = list[list[Drawn]]  # of one chunk: what each of its samples drew


@dataclass(frozen=True)
class Executed:
    """What came of a step's plan."""

    result: StepResult
    logprobs: Mapping[SampleKey, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    """Of each output's tokens, if asked for."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """What went wrong, by request."""
    verified: Mapping[SampleKey, DraftOutcome] = field(default_factory=dict)
    """What became of drafts, for samples that had any."""
    embeddings: Mapping[SampleKey, tuple[float, ...]] = field(default_factory=dict)
    """Of samples that ended with one."""
    prompt_logprobs: Mapping[SampleKey, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    """Of samples whose prompt ended, if asked for."""


class Row:
    """A sample in the runner, from its start to its end: its place among the tables, and what it has seen."""

    def __init__(self, start: RowStart, place: int, grammars: Grammars | None) -> None:
        self.request = start.request
        self.stops = start.request.stop_ids
        self.place = place
        self.tables: tuple[BlockTable, ...] = ()
        self.num_tokens = len(start.tokens)
        num_prompt, params = len(self.request.prompt), self.request.params
        self.first_end = num_prompt + params.min_tokens
        self.end = None if params.max_tokens is None else num_prompt + params.max_tokens
        self.state = DrawState(params, start.tokens[:num_prompt], start.tokens[num_prompt:], grammars)
        self.pool = MeanPool() if self.request.embeds else None
        count = params.prompt_logprobs
        self.scores = None if count is None else PromptLogprobs(self.request.prompt, count)

    def verify(self, chunk: Chunk, first_row: int) -> Verification:
        return Verification(chunk, self.request.params, self.stops, first_row, self.state, self.first_end)

    def note(self, tokens: Sequence[int]) -> None:
        self.num_tokens += len(tokens)
        self.state.add(*tokens)

    def room(self, most: int) -> int:
        """Tokens that it may draw after the next one."""
        return most if self.end is None else min(most, self.end - self.num_tokens - 1)


class Tables:
    """Every row's blocks, by window: [rows, blocks]. Entries after a row's last block are left over from other rows."""

    def __init__(self, windows: Sequence[int], width: int) -> None:
        self._windows = windows
        self._arrays = [np.zeros((16, width), np.int64) for _ in windows]
        self._free = list(range(15, -1, -1))
        self._places: list[int] = []  # of the rows that were asked for last
        self._found: dict[int, I64] = {}  # their tables

    def take(self) -> int:
        """A place for a row."""
        if not self._free:
            size = len(self._arrays[0])
            self._arrays = [np.concatenate([array, np.zeros_like(array)]) for array in self._arrays]
            self._free = list(range(2 * size - 1, size - 1, -1))
        return self._free.pop()

    def give_back(self, place: int) -> None:
        self._free.append(place)

    def update(self, row: Row, tables: tuple[BlockTable, ...]) -> None:
        """Tables that did not change are the same objects."""
        self._places = []
        for array, before, table in zip_longest(self._arrays, row.tables, tables):
            if table is not before:
                first = 0 if before is None else _num_alike(before, table)
                array[row.place, first : len(table)] = table[first:]
        row.tables = tables

    def of(self, rows: Sequence[Row]) -> dict[int, I64]:
        """The tables of these rows, as wide as the longest; the same arrays until a table changes."""
        places = [row.place for row in rows]
        if places != self._places:
            width = max(len(row.tables[0]) for row in rows)
            pairs = zip(self._windows, self._arrays, strict=True)
            self._found = {window: array[:, :width].take(places, axis=0) for window, array in pairs}
            self._places = places
        return self._found


def _ms_since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1000


def _num_alike(before: BlockTable, table: BlockTable) -> int:
    """A table mostly grows at its end: all of the old one, or nothing, counts as alike."""
    return len(before) if table[: len(before)] == before else 0


class ForwardPass(Protocol):
    """What the executor needs of a runner."""

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
        """The rows that the last pass made its logits from."""

    def normed(self, first: int, count: int) -> F32:
        """Rows of the last pass after the last norm."""

    def logits(self, first: int, count: int) -> F32:
        """Of any rows of the last pass."""


class Executor:
    """Executes plans one after the other. A request that fails takes no other with it."""

    def __init__(
        self, runner: ForwardPass, grammars: Grammars | None = None, speculator: Speculator | None = None
    ) -> None:
        self.runner = runner
        self._grammars = grammars
        self._speculator = speculator
        self._windows = runner.model.config.windows  # of the plan's groups
        self._has_states = bool(runner.model.config.states)
        self._sampler = Sampler(runner.backend)
        self._rows: dict[SampleKey, Row] = {}
        self._tables = Tables(self._windows, runner.kv.table_width)
        self._last_rows: dict[SampleKey, int] = {}  # of the last pass's logits: where samples drew their last token

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
            self._note(chunk, draws)
        _settle([self._rows[chunk.key].state for chunk in plan.chunks], SETTLE_S)
        verified = _verified(plan.chunks, drawn, failures, deferred)
        drafts = self._speculate(plan, drawn, verified, _ms_since(begin))
        outputs, logprobs = [], {}
        embeddings = self._embeddings(plan.chunks, failures)
        for chunk, draws in zip(plan.chunks, drawn, strict=True):
            for number, own in zip(chunk.samples, draws, strict=True):
                key = SampleKey(chunk.key.request, number)
                tokens = () if key in embeddings else tuple([draw.token for draw in own])
                outputs.append(Output(key, tokens, drafts.get(key, ())))
                if own[0].logprobs is not None:
                    logprobs[key] = tuple([draw.logprobs for draw in own if draw.logprobs is not None])
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
            self._tables.give_back(row.place)
            if self._speculator is not None:
                self._speculator.end(key)
        for start in plan.starts:
            self._rows[start.key] = Row(start, self._tables.take(), self._grammars)
            if self._speculator is not None:
                self._speculator.start(*start)

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        for group, source, target in copies:
            self.runner.kv.copy_block(self.runner.backend, self._windows[group], source, target)

    def _run(self, chunks: Sequence[Chunk], failures: dict[str, str], deferred: set[SampleKey]) -> list[Draws]:
        """All chunks together. If that fails, one by one, to find the chunk that fails: draws do not depend on
        other chunks, and what was written to the caches is written again."""
        try:
            return self._run_together(chunks, failures, deferred)
        except Stopped:
            raise
        except Exception as error:
            if len(chunks) > 1:
                drawn = [self._run([chunk], failures, deferred)[0] for chunk in chunks]
                self._last_rows = {}  # they are rows of several passes
                return drawn
            failures[chunks[0].key.request] = f"{type(error).__name__}: {error}"
            return [[[Drawn(BROKEN)]] * len(chunks[0].samples)]

    def _run_together(self, chunks: Sequence[Chunk], failures: dict[str, str], deferred: set[SampleKey]) -> list[Draws]:
        """failures, deferred: gain the requests whose grammars failed, and chunks whose grammars were not ready."""
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
        """Pass hidden states on to embeddings and prompt logprobs."""
        first = 0
        for chunk, row in zip(chunks, rows, strict=True):
            if row.pool is not None:
                row.pool.add(chunk.start, self.runner.normed(first, len(chunk.tokens)))
            if row.scores is not None:
                self._score(row.scores, chunk, first)
            first += len(chunk.tokens)

    def _score(self, scores: PromptLogprobs, chunk: Chunk, first: int) -> None:
        wanted = scores.wanted(chunk.start, len(chunk.tokens))
        for start in range(wanted.start, wanted.stop, SCORED_ROWS):
            count = min(SCORED_ROWS, wanted.stop - start)
            scores.add(self.runner.backend, self.runner.logits(first + start - chunk.start, count))

    def _prompt_logprobs(self, chunks: Sequence[Chunk]) -> dict[SampleKey, tuple[TokenLogprobs, ...]]:
        """Of the requests that want them and draw their first token."""
        logprobs: dict[SampleKey, tuple[TokenLogprobs, ...]] = {}
        for chunk in chunks:
            row = self._rows[chunk.key]
            if row.scores is not None and chunk.samples and chunk.start < len(row.request.prompt):
                logprobs[chunk.key] = row.scores.logprobs()
        return logprobs

    def _embeddings(self, chunks: Sequence[Chunk], failures: Mapping[str, str]) -> dict[SampleKey, tuple[float, ...]]:
        """Of the requests that want one and whose prompt has ended."""
        embeddings: dict[SampleKey, tuple[float, ...]] = {}
        for chunk in chunks:
            pool = self._rows[chunk.key].pool
            if pool is not None and chunk.samples and chunk.key.request not in failures:
                mean = pool.mean()
                embeddings |= {} if mean is None else {chunk.key: mean}
        return embeddings

    def _draw(self, logits: F32, verifications: Sequence[Verification]) -> None:
        """One round is enough unless penalties or grammars must know of one draft before they judge the next.

        A failure or a stop in a later round ends all drafts there. The next step has none and
        finds the failing request.
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
        together = list(chain.from_iterable(draws))
        drawn = iter(self._sampler.draw(logits, together) if together else [])
        for verification, own in zip(ready, draws, strict=True):
            verification.take([next(drawn) for _ in own])

    def _note(self, chunk: Chunk, draws: Draws) -> None:
        """What the chunk's own sample drew counts for its penalties and its grammar; the others start with theirs."""
        for number, own in zip(chunk.samples, draws, strict=True):
            if number == chunk.key.sample:
                self._rows[chunk.key].note([draw.token for draw in own if draw.token != BROKEN])

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
            for number, own in zip(chunk.samples, draws, strict=True):
                if number == chunk.key.sample and own[-1].token != BROKEN:
                    row, place = self._rows[chunk.key], self._last_rows.get(chunk.key)
                    state = None if place is None else hidden[place]
                    sampled[chunk.key] = SampledTokens([draw.token for draw in own], state, row.state.forced)
                    if own[-1].token not in row.stops:
                        max_depths[chunk.key] = row.room(self.runner.max_chunk - 1)
        return self._speculator.propose(sampled, max_depths, num_other_tokens)


def _states(chunks: Sequence[Chunk]) -> StepStates:
    saves: list[int] = []
    for chunk in chunks:
        own = [NO_BLOCK] * len(chunk.tokens)
        for row, slot in chunk.states.saves:
            own[row] = slot
        saves += own
    return StepStates([chunk.states.load for chunk in chunks], saves)


def _settle(states: Sequence[DrawState], seconds: float) -> None:
    """Wait once for all grammars: for the one that took longest so far."""
    awaited = _awaited(states)
    costs = [(constraint.spent_s, number) for number, state in enumerate(awaited) if (constraint := state.constraint)]
    if costs:
        awaited[max(costs)[1]].settle(seconds)


def _awaited(states: Sequence[DrawState]) -> Sequence[DrawState]:
    """Those whose masks a step waits for: slow grammars only where no other sample would wait with them."""
    return [state for state in states if not state.is_slow] or states


def _verified(
    chunks: Sequence[Chunk], drawn: Sequence[Draws], failures: Mapping[str, str], deferred: Collection[SampleKey]
) -> dict[SampleKey, DraftOutcome]:
    """Of the chunks that had drafts."""
    return {
        chunk.key: DraftOutcome(chunk.num_logits - 1, len(draws[0]) - 1)
        for chunk, draws in zip(chunks, drawn, strict=True)
        if chunk.num_logits > 1 and chunk.key.request not in failures and chunk.key not in deferred
    }
