"""A step's plan, executed: rows come and go, blocks are copied, chunks run, samples draw their tokens."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.core import BlockCopy, BlockTable, Chunk, Output, RowStart, SampleKey, StepPlan, StepResult, sample_seed
from surefoot.ops.arrays import I64
from surefoot.runner.runner import Request as Tokens
from surefoot.runner.runner import Runner, Work
from surefoot.sampling import Draw, Drawn, Grammars, Sampler, SeenTokens, TokenLogprobs
from surefoot.sampling.grammar import Constraint
from surefoot.sampling.penalties import has_penalties

BROKEN = -1  # a token that no vocabulary has


@dataclass(frozen=True)
class Executed:
    """logprobs: of each output's tokens, where asked for. failures: what went wrong, by request."""

    result: StepResult
    logprobs: Mapping[SampleKey, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


class Row:
    """A sample in the runner, from its start to its end."""

    def __init__(self, start: RowStart, grammars: Grammars | None) -> None:
        self.request = start.request
        self.tokens = Tokens({}, max_tokens=0)
        self._blocks: dict[int, BlockTable] = {}
        prompt, drawn = start.tokens[: len(self.request.prompt)], start.tokens[len(self.request.prompt) :]
        self.seen = SeenTokens(prompt, drawn) if has_penalties(self.request.params) else None
        self.constraint: Constraint | None = None  # made with the first draw, where its failing is this request's alone
        self._grammars = grammars
        self._drawn = drawn

    def place(self, chunk: Chunk, windows: Sequence[int], width: int) -> None:
        """Where its tokens lie at this step; a table that did not change is the same object."""
        self.tokens.num_tokens = chunk.start
        self.tokens.max_tokens = chunk.start + len(chunk.tokens)
        for window, blocks in zip(windows, chunk.tables, strict=True):
            if self._blocks.get(window) is not blocks:
                self._blocks[window] = blocks
                self.tokens.tables[window] = _padded(blocks, width)

    def draws(self, chunk: Chunk, row: int) -> list[Draw]:
        params, position = self.request.params, chunk.start + len(chunk.tokens)
        if params.grammar is not None and self.constraint is None and self._grammars is not None and chunk.samples:
            self.constraint = self._grammars.start(params.grammar, self._drawn)
        return [
            Draw(row, params, sample_seed(params.seed or 0, number), position, self.seen, self.constraint)
            for number in chunk.samples
        ]


class Executor:
    """Executes plans one after the other. A request that fails takes no other with it."""

    def __init__(self, runner: Runner, grammars: Grammars | None = None) -> None:
        self.runner = runner
        self._grammars = grammars
        self._windows = runner.model.config.windows  # of the plan's groups
        self._sampler = Sampler(runner.backend)
        self._rows: dict[SampleKey, Row] = {}

    def execute(self, plan: StepPlan) -> Executed:
        begin = time.perf_counter()
        for key in plan.ends:
            self._rows.pop(key, None)
        for start in plan.starts:
            self._rows[start.key] = Row(start, self._grammars)
        self._copy(plan.copies)
        failures: dict[str, str] = {}
        drawn = self._run(plan.chunks, failures) if plan.chunks else []
        outputs, logprobs = [], {}
        for chunk, tokens in zip(plan.chunks, drawn, strict=True):
            self._note(chunk, tokens)
            for number, one in zip(chunk.samples, tokens, strict=True):
                key = SampleKey(chunk.key.request, number)
                outputs.append(Output(key, (one.token,)))
                if one.logprobs is not None:
                    logprobs[key] = (one.logprobs,)
        elapsed_ms = (time.perf_counter() - begin) * 1000
        return Executed(StepResult(outputs, elapsed_ms), logprobs, failures)

    def clear(self) -> None:
        self._rows.clear()

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
        works, draws = [], []
        num_logits = 0
        for chunk in chunks:
            row = self._rows[chunk.key]
            row.place(chunk, self._windows, self.runner.kv.table_width)
            works.append(Work(row.tokens, chunk.tokens, chunk.num_logits))
            draws += row.draws(chunk, num_logits)
            num_logits += chunk.num_logits
        logits = self.runner.execute(works)
        drawn = iter(self._sampler.draw(logits, draws) if draws else [])
        return [[next(drawn) for _ in chunk.samples] for chunk in chunks]

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


def _padded(blocks: BlockTable, width: int) -> I64:
    table = np.zeros(width, np.int64)
    table[: len(blocks)] = blocks
    return table
