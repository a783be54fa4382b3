"""Samples tokens from logits: bias, penalties, masks, then the native sampler. A token depends on its request and row
alone. Logprobs are of the model's own distribution, before bias, penalties, temperature and filters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from surefoot.core import SamplingParams
from surefoot.ops import Backend, Sampling, top_logprobs
from surefoot.ops.arrays import F32
from surefoot.sampling.grammar import Constraint
from surefoot.sampling.penalties import SeenTokens, apply_bias, apply_penalties, has_penalties

MIN_TOP_P = 1e-30  # below, float32 may round to 0


class TokenLogprobs(NamedTuple):
    """The logprob of a sampled token, and the likeliest tokens with theirs."""

    token: int  # that was sampled
    logprob: float  # in nats
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), likeliest first


class Logprobs:
    """Logprobs of some rows of logits, taken before anything changes the logits.

    A token's logprob is (x - max) - log(sum of e^(x - max)), as in docs/design/sampling.md. The likeliest token's is
    the second term alone, which is therefore known.
    """

    def __init__(self, backend: Backend, logits: F32, rows: Sequence[int], count: int) -> None:
        selected = logits if list(rows) == list(range(len(logits))) else logits[list(rows)]
        self._top = top_logprobs(backend, selected, max(count, 1))
        self._indices = {row: i for i, row in enumerate(rows)}

    def of(self, row: int, logits: F32, token: int, count: int) -> TokenLogprobs:
        """The logprobs of a token sampled from the row; `logits` is the row before any change."""
        ids, values = self._top.ids[self._indices[row]], self._top.logprobs[self._indices[row]]
        logprob = np.float32(logits[token] - logits[ids[0]]) + values[0]
        top = zip(ids[:count].tolist(), values[:count].tolist(), strict=True)
        return TokenLogprobs(token, float(logprob), tuple(top))


class Draw(NamedTuple):
    """A token to sample. Draws from the same row are samples of one prompt and differ only in their seeds."""

    row: int  # of the logits
    params: SamplingParams  # of the request
    seed: int  # of the sample
    position: int  # of the token to sample, counted from the start of the prompt
    seen: SeenTokens | None = None  # for penalties
    constraint: Constraint | None = None  # of the grammar
    barred: frozenset[int] = frozenset()  # ids that must not be sampled


class Drawn(NamedTuple):
    """A sampled token."""

    token: int  # -1 if the row's logits are broken
    logprobs: TokenLogprobs | None = None  # if the request asks for them


class Sampler:
    """Samples tokens from rows of logits."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._sampling = Sampling(backend, 16)
        self._params: list[SamplingParams] = []  # of the first rows of `_sampling`

    def draw(self, logits: F32, draws: Sequence[Draw]) -> list[Drawn]:
        """The sampled tokens, in the order of the draws. Changes the logits."""
        firsts = {draw.row: draw for draw in reversed(draws)}
        counts = {row: draw.params.logprobs for row, draw in firsts.items() if draw.params.logprobs is not None}
        logprobs = Logprobs(self._backend, logits, list(counts), max(counts.values())) if counts else None
        unchanged = {row: logits[row].copy() for row in counts if firsts[row].params.changes_logits}
        _change(logits, list(firsts.values()))
        results = []
        for draw, token in zip(draws, self._tokens(logits, draws), strict=True):
            if logprobs is None or draw.row not in counts or token < 0:
                results.append(Drawn(token))
                continue
            row = unchanged.get(draw.row, logits[draw.row])
            results.append(Drawn(token, logprobs.of(draw.row, row, token, counts[draw.row])))
        return results

    def _tokens(self, logits: F32, draws: Sequence[Draw]) -> list[int]:
        """The sampled tokens. Adjacent rows are sampled in one call."""
        tokens: list[int] = []
        first = 0
        for last, draw in enumerate(draws, 1):
            if last == len(draws) or draws[last].row != draw.row + 1:
                tokens += self._sample(logits[draws[first].row : draw.row + 1], draws[first:last])
                first = last
        return tokens

    def _sample(self, logits: F32, draws: Sequence[Draw]) -> list[int]:
        count = len(draws)
        if count > self._sampling.num_rows:
            self._sampling, self._params = Sampling(self._backend, 2 * count), []
        rows = self._sampling.rows
        params = [draw.params for draw in draws]
        if params != self._params:  # most steps have the parameters of the previous step
            rows.temperature[:count] = [each.temperature for each in params]
            rows.top_k[:count] = [each.top_k for each in params]
            rows.top_p[:count] = [max(each.top_p, MIN_TOP_P) for each in params]
            rows.min_p[:count] = [each.min_p for each in params]
            self._params = params
        rows.seeds[:count] = [draw.seed for draw in draws]
        rows.positions[:count] = [draw.position for draw in draws]
        return self._sampling.draw(logits)


def _change(logits: F32, draws: Sequence[Draw]) -> None:
    """Applies bias, then penalties, then grammars and barred tokens, in place."""
    for draw in draws:
        if draw.params.logit_bias:
            apply_bias(logits[draw.row], draw.params.logit_bias)
    penalised = [(draw, draw.seen) for draw in draws if draw.seen is not None and has_penalties(draw.params)]
    if penalised:
        rows, params = [draw.row for draw, _ in penalised], [draw.params for draw, _ in penalised]
        apply_penalties(logits, rows, params, [seen for _, seen in penalised])
    for draw in draws:
        if draw.constraint is not None:
            draw.constraint.apply(logits[draw.row])
        if draw.barred:
            logits[draw.row, [token for token in draw.barred if token < logits.shape[1]]] = -np.inf
