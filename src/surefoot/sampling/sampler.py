"""Samples tokens from logits: bias, penalties, masks, then the native sampler. A token depends on its request and row
alone. Logprobs are of the model's own distribution, before bias, penalties, temperature and filters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from surefoot.core import SamplingParams
from surefoot.ops import Backend, Sampling, top_logprobs
from surefoot.ops.arrays import F32, I64
from surefoot.sampling.grammar import Constraint

MIN_TOP_P = 1e-30  # below, float32 may round to 0


class SeenTokens:
    """Distinct ids in order of first occurrence, each with the number of times that it was sampled."""

    def __init__(self, prompt: Iterable[int], sampled: Iterable[int] = ()) -> None:
        self._indices = {token: i for i, token in enumerate(dict.fromkeys(prompt))}
        self._ids = np.fromiter(self._indices, np.int64, len(self._indices))
        self._counts = np.zeros(len(self._indices), np.float32)
        for token in sampled:
            self.add(token)

    def add(self, token: int) -> None:
        """Counts a sampled token."""
        i = self._indices.setdefault(token, len(self._indices))
        if i == len(self._ids):
            # Spare capacity, so that a long answer is not copied at every new token.
            spare = max(64, len(self._ids))
            self._ids = np.concatenate([self._ids, np.zeros(spare, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(spare, np.float32)])
        self._ids[i] = token
        self._counts[i] += 1

    def copy(self) -> "SeenTokens":
        other = SeenTokens(())
        other._indices, other._ids, other._counts = self._indices.copy(), self._ids.copy(), self._counts.copy()
        return other

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def ids(self) -> I64:
        return self._ids[: len(self)]

    @property
    def counts(self) -> F32:
        return self._counts[: len(self)]


def apply_bias(logits: F32, bias: Mapping[int, float]) -> None:
    """Adds the bias to one row, in place. Ids beyond the vocabulary are ignored."""
    ids = np.fromiter((token for token in bias if token < len(logits)), np.int64)
    logits[ids] += np.array([bias[int(token)] for token in ids], np.float32)


def has_penalties(params: SamplingParams) -> bool:
    return (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)


def apply_penalties(
    logits: F32, rows: Sequence[int], params: Sequence[SamplingParams], seen: Sequence[SeenTokens]
) -> None:
    """Applies each request's penalties, on tokens that occurred before, to its row, in place.

        repetition, prompt and answer: x / r if x > 0, else x * r
        frequency, answer: x - f * count
        presence, answer: x - p if count > 0

    in this order, each a separate operation in float32, so that the bits depend on the request alone.
    """
    lengths = [len(tokens) for tokens in seen]

    def spread(values: Sequence[float]) -> F32:
        return np.repeat(np.array(values, np.float32), lengths)

    where = np.repeat(np.array(rows, np.int64), lengths), np.concatenate([tokens.ids for tokens in seen])
    counts = np.concatenate([tokens.counts for tokens in seen])
    repetition = spread([each.repetition_penalty for each in params])
    x = logits[where]
    x = np.where(x > 0, x / repetition, x * repetition)
    x -= spread([each.frequency_penalty for each in params]) * counts
    x -= spread([each.presence_penalty for each in params]) * (counts > 0)
    logits[where] = x


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
