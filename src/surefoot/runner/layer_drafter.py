"""A drafter: the model's drafting layer (see `models.drafting`), which its checkpoint or a published head brings.

The model's pass has written the layer's keys and values of all tokens but the last. Guessing writes to blocks of its
own, behind those of the model: a sample's last block is copied there, and guessed tokens follow. So nothing that the
model wrote changes, and nothing is rolled back when drafts are rejected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from surefoot.core import Request, SampleKey, SamplingParams, sample_seed
from surefoot.models import Batch, DraftOutputs, Model, Workspace, empty_batch
from surefoot.ops import kv_copy
from surefoot.ops.arrays import F32, I64
from surefoot.runner.runner import Runner
from surefoot.sampling import Draw, Sampler
from surefoot.speculate import NO_DRAFT, DraftOffer, TargetRow


@dataclass(eq=False)
class _Text:
    """What drafting for one sample needs."""

    params: SamplingParams
    seed: int
    num_tokens: int  # prompt and output so far
    last: int  # the last of these tokens
    row: TargetRow | None = None  # that `last` was drawn from


@dataclass(frozen=True)
class _DraftRows:
    """One row for each sample: where its next guess is written, and what it reads."""

    lengths: I64  # [samples], tokens before the first guess
    tables: I64  # [samples, blocks]
    window: int  # of the layer

    def batch(self, tokens: Sequence[int], depth: int, chosen: I64, block_size: int) -> Batch:
        """A token for each of the chosen samples, after `depth` guesses."""
        positions, tables = self.lengths[chosen] + depth, self.tables[chosen]
        batch = empty_batch(len(chosen), len(chosen), 0, {self.window: tables.shape[1]})
        batch.tokens[:], batch.positions[:] = tokens, positions
        kv = batch.kv[self.window]
        kv.chunks.starts[:] = np.arange(len(chosen) + 1)
        kv.chunks.lengths[:] = positions + 1
        kv.chunks.block_table[:] = tables
        blocks = tables[np.arange(len(chosen)), positions // block_size]
        kv.slots[:] = blocks * block_size + positions % block_size
        return batch


class LayerDrafter:
    """Implements Drafter with the model's drafting layer."""

    def __init__(self, runner: Runner) -> None:
        if runner.model.drafting is None:
            raise ValueError(f"the {runner.model.config.family} model has no layer that drafts")
        self._runner, self._layer = runner, runner.model.drafting
        self._model = _with_outputs(runner.model, self._layer.outputs)
        self._sampler, self._workspace = Sampler(runner.backend), Workspace()
        self._texts: dict[SampleKey, _Text] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        params = replace(request.params, logprobs=None, grammar=None)
        seed = sample_seed(request.params.seed or 0, key.sample)
        self._texts[key] = _Text(params, seed, len(tokens), tokens[-1])

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        text = self._texts[key]
        text.num_tokens += len(tokens)
        text.last, text.row = tokens[-1], row

    def end(self, key: SampleKey) -> None:
        self._texts.pop(key, None)

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [NO_DRAFT if self._texts[key].row is None else DraftOffer(max_depth) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """Drafts for all samples in one batch; each round adds a token to every draft. A sample for which no blocks
        are left gets none."""
        reserved = self._reserve(depths)
        if reserved is None:
            return {}
        keys, rows = reserved
        texts, drafts = [self._texts[key] for key in keys], [list[int]() for _ in keys]
        hidden = self._layer.first(self._runner.backend, np.array([text.row.hidden for text in texts if text.row]))
        active, depth = np.arange(len(keys)), 0
        while active.size:
            tokens = [drafts[number][-1] if depth else texts[number].last for number in active]
            logits, hidden = self._guess(rows.batch(tokens, depth, active, self._runner.block_size), hidden)
            for number, token in zip(
                active, self._draw(logits, [texts[number] for number in active], depth), strict=True
            ):
                drafts[number].append(token)
            depth += 1
            continues = [drafts[number][-1] >= 0 and depth < depths[keys[number]] for number in active]
            active, hidden = active[continues], hidden[continues]
        pairs = zip(keys, drafts, strict=True)
        return {key: tuple(token for token in tokens if token >= 0) for key, tokens in pairs}

    def _draw(self, logits: F32, texts: Sequence[_Text], depth: int) -> list[int]:
        draws = [Draw(row, text.params, text.seed, text.num_tokens + depth) for row, text in enumerate(texts)]
        return [drawn.token for drawn in self._sampler.draw(logits, draws)]

    def _guess(self, batch: Batch, hidden: F32) -> tuple[F32, F32]:
        """Logits, and what the next guess reads."""
        backend, memory = self._runner.backend, self._runner.kv.memory
        stream = self._layer.guess(backend, batch, hidden, memory, self._workspace)
        return self._logits(stream), self._layer.further(backend, stream)

    def _logits(self, stream: F32) -> F32:
        """By token id: noise, penalties and filters go by it. Ids that are never drafted get minus infinity."""
        logits, ids = self._model.logits(self._runner.backend, stream, self._workspace), self._layer.outputs.ids
        if ids is None:
            return logits
        spread = self._workspace.floats("spread logits", len(stream), self._runner.model.config.vocab_size)
        spread.fill(-np.inf)
        spread[:, ids] = logits
        return spread

    # ---- blocks ----

    def _reserve(self, depths: Mapping[SampleKey, int]) -> tuple[list[SampleKey], _DraftRows] | None:
        """The samples for which there are blocks, with their tables: their own blocks, then those that guesses write
        to, of which the first is a copy of their last."""
        size, cache = self._runner.block_size, self._runner.kv.caches[self._layer.attention.layer]
        window = self._layer.attention.window
        group, first = (
            self._runner.model.config.windows.index(window),
            cache.num_blocks - self._runner.kv.num_draft_blocks,
        )
        keys, lengths, tables, copies = list[SampleKey](), list[int](), list[list[int]](), list[tuple[int, int]]()
        for key, depth in depths.items():
            row, length = self._texts[key].row, self._texts[key].num_tokens - 1
            num_own = length // size
            end = first + -(-(length + depth) // size) - num_own
            if row is None or end > cache.num_blocks:
                continue
            if length % size:
                copies.append((row.tables[group][num_own], first))
            keys.append(key)
            lengths.append(length)
            tables.append([*row.tables[group][:num_own], *range(first, end)])
            first = end
        if copies:
            kv_copy(self._runner.backend, cache, np.array(copies, np.int64))
        return (keys, _DraftRows(np.array(lengths, np.int64), padded(tables), window)) if keys else None


def _with_outputs(model: Model, outputs: DraftOutputs) -> Model:
    """The model, whose logits are those of the drafting layer's stream."""
    if outputs.head is None:
        return replace(model, norm=outputs.norm)
    return replace(
        model, norm=outputs.norm, head=outputs.head, config=replace(model.config, logit_scale=1.0, logit_softcap=0.0)
    )


def padded(tables: Sequence[Sequence[int]]) -> I64:
    """Tables of one width; what follows a table's end is never read."""
    out = np.zeros((len(tables), max(map(len, tables))), np.int64)
    for number, table in enumerate(tables):
        out[number, : len(table)] = table
    return out
