"""A drafter whose guesses begin from the target's hidden state alone: a head keeps nothing between steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from surefoot.core import Request, SampleKey, SamplingParams, sample_seed
from surefoot.ops import Backend
from surefoot.ops.arrays import F32, I64
from surefoot.sampling import Draw, Sampler
from surefoot.speculate import NO_DRAFT, DraftOffer, TargetRow


class StateGuesser(Protocol):
    """Guesses tokens after the target's hidden state that a sample's last token was drawn from."""

    @property
    def max_depth(self) -> int | None:
        """Tokens that it can guess; None: any number."""

    def guess(self, states: F32, tokens: I64, depth: int) -> tuple[F32, F32]:
        """The next states, and logits [states, vocabulary size] of the token after `tokens`. depth: guesses before this
        one; before the first one the states are the target's."""


@dataclass(eq=False)
class _Sample:
    """What drafting for one sample needs."""

    params: SamplingParams
    seed: int
    num_tokens: int  # prompt and output so far
    last: int  # the last of these tokens
    state: F32 | None = None  # the target's hidden state that `last` was drawn from


class StateDrafter:
    """Implements Drafter with a StateGuesser."""

    def __init__(self, backend: Backend, guesser: StateGuesser) -> None:
        self._guesser, self._sampler = guesser, Sampler(backend)
        self._samples: dict[SampleKey, _Sample] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        params = replace(request.params, logprobs=None, grammar=None)
        seed = sample_seed(request.params.seed or 0, key.sample)
        self._samples[key] = _Sample(params, seed, len(tokens), tokens[-1])

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        sample = self._samples[key]
        sample.num_tokens += len(tokens)
        sample.last = tokens[-1]
        sample.state = None if row is None else row.hidden.copy()

    def end(self, key: SampleKey) -> None:
        self._samples.pop(key, None)

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        most = self._guesser.max_depth
        offer = DraftOffer(max_depth if most is None else min(max_depth, most))
        return [NO_DRAFT if self._samples[key].state is None else offer for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """Drafts for all samples in one batch; each round adds a token to every draft."""
        drafts: dict[SampleKey, list[int]] = {key: [] for key in depths}
        active, depth = list(depths), 0
        states = np.array([self._samples[key].state for key in active], np.float32)
        while active:
            samples = [self._samples[key] for key in active]
            last = [drafts[key][-1] if depth else self._samples[key].last for key in active]
            states, logits = self._guesser.guess(states, np.array(last, np.int64), depth)
            draws = [
                Draw(row, sample.params, sample.seed, sample.num_tokens + depth) for row, sample in enumerate(samples)
            ]
            for key, drawn in zip(active, self._sampler.draw(logits, draws), strict=True):
                drafts[key].append(drawn.token)
            depth += 1
            continues = [drafts[key][-1] >= 0 and depth < depths[key] for key in active]
            active = [key for key, is_active in zip(active, continues, strict=True) if is_active]
            states = states[continues]
        return {key: tuple(token for token in tokens if token >= 0) for key, tokens in drafts.items()}
