"""A step's plan, executed: rows come and go, blocks are copied, chunks run, samples draw their tokens."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from surefoot.core import BlockCopy, BlockTable, Chunk, Output, RowStart, SampleKey, StepPlan, StepResult, sample_seed
from surefoot.ops.arrays import I64
from surefoot.runner.pooling import MeanPool
from surefoot.runner.runner import Flat, Runner
from surefoot.sampling import Draw, Drawn, Grammars, Sampler, SeenTokens, TokenLogprobs
from surefoot.sampling.grammar import Constraint
from surefoot.sampling.penalties import has_penalties

BROKEN = -1  # a token that no vocabulary has


@dataclass(frozen=True)
class Executed:
    """logprobs: of each output's tokens, where asked for. embeddings: of those that ended with one. failures: what went
    wrong, by request."""

    result: StepResult
    logprobs: Mapping[SampleKey, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    embeddings: Mapping[SampleKey, tuple[float, ...]] = field(default_factory=dict)


class Row:
    """A sample in the runner, from its start to its end: its place among the tables, and what it has seen."""

    def __init__(self, start: RowStart, place: int, grammars: Grammars | None) -> None:
        self.request = start.request
        self.place = place
        self.tables: tuple[BlockTable, ...] = ()
        prompt, drawn = start.tokens[: len(self.request.prompt)], start.tokens[len(self.request.prompt) :]
        self.seen = SeenTokens(prompt, drawn) if has_penalties(self.request.params) else None
        self.constraint: Constraint | None = None  # made with the first draw, where its failing is this request's alone
        self.pool = MeanPool() if self.request.embeds else None
        self._grammars = grammars
        self._drawn = drawn
        self._seed = self.request.params.seed or 0

    def draws(self, chunk: Chunk, row: int) -> list[Draw]:
        params, position = self.request.params, chunk.start + len(chunk.tokens)
        if params.grammar is not None and self.constraint is None and self._grammars is not None and chunk.samples:
            self.constraint = self._grammars.start(params.grammar, self._drawn)
        return [
            Draw(row, params, sample_seed(self._seed, number), position, self.seen, self.constraint)
            for number in chunk.samples
        ]


class Tables:
    """Every row's blocks, by window: [rows, blocks]. What lies behind a row's last block is left over from others."""

    def __init__(self, windows: Sequence[int], width: int) -> None:
        self._windows = windows
        self._arrays = [np.zeros((16, width), np.int64) for _ in windows]
        self._free = list(range(15, -1, -1))

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
        for array, before, table in zip_longest(self._arrays, row.tables, tables):
            if table is not before:
                first = 0 if before is None else _num_alike(before, table)
                array[row.place, first : len(table)] = table[first:]
        row.tables = tables

    def of(self, rows: Sequence[Row]) -> dict[int, I64]:
        """Those rows' tables, as wide as the longest."""
        places, width = [row.place for row in rows], max(len(row.tables[0]) for row in rows)
        pairs = zip(self._windows, self._arrays, strict=True)
        return {window: array[:, :width].take(places, axis=0) for window, array in pairs}


def _num_alike(before: BlockTable, table: BlockTable) -> int:
    """A table mostly grows at its end: all of the old one, or nothing, counts as alike."""
    return len(before) if table[: len(before)] == before else 0


class Executor:
    """Executes plans one after the other. A request that fails takes no other with it."""

    def __init__(self, runner: Runner, grammars: Grammars | None = None) -> None:
        self.runner = runner
        self._grammars = grammars
        self._windows = runner.model.config.windows  # of the plan's groups
        self._sampler = Sampler(runner.backend)
        self._rows: dict[SampleKey, Row] = {}
        self._tables = Tables(self._windows, runner.kv.table_width)

    def execute(self, plan: StepPlan) -> Executed:
        begin = time.perf_counter()
        for key in plan.ends:
            self._tables.give_back(self._rows.pop(key).place)
        for start in plan.starts:
            self._rows[start.key] = Row(start, self._tables.take(), self._grammars)
        self._copy(plan.copies)
        failures: dict[str, str] = {}
        drawn = self._run(plan.chunks, failures) if plan.chunks else []
        outputs, logprobs, embeddings = [], {}, dict[SampleKey, tuple[float, ...]]()
        for chunk, tokens in zip(plan.chunks, drawn, strict=True):
            if (pool := self._rows[chunk.key].pool) is not None:
                made = pool.mean() if chunk.samples and chunk.key.request not in failures else None
                embeddings |= {} if made is None else {chunk.key: made}
                outputs += [Output(chunk.key, (BROKEN,) if made is None else ()) for _ in chunk.samples]
                continue
            self._note(chunk, tokens)
            for number, one in zip(chunk.samples, tokens, strict=True):
                key = SampleKey(chunk.key.request, number)
                outputs.append(Output(key, (one.token,)))
                if one.logprobs is not None:
                    logprobs[key] = (one.logprobs,)
        elapsed_ms = (time.perf_counter() - begin) * 1000
        failed = [chunk.key for chunk in plan.chunks if chunk.key.request in failures] if failures else ()
        return Executed(StepResult(outputs, elapsed_ms, failed), logprobs, failures, embeddings)

    def clear(self) -> None:
        self._rows.clear()
        self._tables = Tables(self._windows, self.runner.kv.table_width)

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        for group, source, target in copies:
            self.runner.kv.copy_block(self.runner.backend, self._windows[group], source, target)

    def _run(self, chunks: Sequence[Chunk], failures: dict[str, str]) -> list[list[Drawn]]:
        """Together; should that fail, one by one, to find who is to blame: company never shows in what is drawn, and
        what was written to the caches before is written again."""
        try:
            return self._run_together(chunks)
        except Exception as error:
            if len(chunks) > 1:
                return [self._run([chunk], failures)[0] for chunk in chunks]
            failures[chunks[0].key.request] = f"{type(error).__name__}: {error}"
            return [[Drawn(BROKEN)] * len(chunks[0].samples)]

    def _run_together(self, chunks: Sequence[Chunk]) -> list[list[Drawn]]:
        rows, draws, tokens, num_logits = list[Row](), list[Draw](), list[int](), 0
        for chunk in chunks:
            row = self._rows[chunk.key]
            if row.tables is not chunk.tables:
                self._tables.update(row, chunk.tables)
            rows.append(row)
            tokens += chunk.tokens
            if chunk.num_logits:
                draws += row.draws(chunk, num_logits)
            num_logits += chunk.num_logits
        logits = self.runner.forward(
            Flat(
                tokens,
                [chunk.start for chunk in chunks],
                [len(chunk.tokens) for chunk in chunks],
                [chunk.num_logits for chunk in chunks],
                self._tables.of(rows),
            )
        )
        self._pool(chunks, rows)
        drawn = iter(self._sampler.draw(logits, draws) if draws else [])
        return [[next(drawn) for _ in chunk.samples] if chunk.num_logits else [] for chunk in chunks]

    def _pool(self, chunks: Sequence[Chunk], rows: Sequence[Row]) -> None:
        """Hidden states of this pass, for those who want them."""
        first = 0
        for chunk, row in zip(chunks, rows, strict=True):
            if row.pool is not None:
                row.pool.add(chunk.start, self.runner.hidden(first, len(chunk.tokens)))
            first += len(chunk.tokens)

    def _note(self, chunk: Chunk, drawn: Sequence[Drawn]) -> None:
        """What the chunk's own sample drew counts for its penalties and its grammar; the others start with theirs."""
        row = self._rows[chunk.key]
        for number, one in zip(chunk.samples, drawn, strict=True):
            if number != chunk.key.sample or one.token == BROKEN:
                continue
            if row.seen is not None:
                row.seen.add(one.token)
            if row.constraint is not None:
                row.constraint.accept(one.token)
