"""A light head on the target's hidden state that drafts: the state steps on by each token, as in a recurrent network.

    u = [norm(state) * state_norm, norm(embedding of the token) * token_norm]
    state = state + out · silu(in · u)
    logits = the target's own, of that state

The first state is the target's, from which the sample's last token was drawn. There is nothing to keep between steps
and nothing to take back when drafts were wrong.

The file is safetensors with in.weight [m, 2 width], out.weight [width, m], state_norm.weight and token_norm.weight
[width], in any float type. It may have vocabulary [ids], integers in ascending order: only these are guessed, and of
the target's head only their rows are read, which are kept in four bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from surefoot.core import Request, SampleKey, SamplingParams, sample_seed
from surefoot.formats import W4, round_to
from surefoot.models import Model, Workspace
from surefoot.ops import Backend, GluForm, IntegerWeights, embed, glu, linear, norm, pack, quantise
from surefoot.ops.arrays import F32, I64
from surefoot.sampling import Draw, Sampler
from surefoot.speculate import NO_DRAFT, DraftOffer
from surefoot.weights.safetensors import SafetensorsError, StoredTensor, read_safetensors


@dataclass(frozen=True)
class HeadWeights:
    """Matrices are in four bits: a guess need not be exact, and every guess reads all of them."""

    inner: IntegerWeights  # [m, 2 width]
    outer: IntegerWeights  # [width, m]
    state_norm: F32
    token_norm: F32
    vocabulary: I64 | None = None  # ids that it guesses; None: all


def load_head(path: Path, width: int, vocab_size: int) -> HeadWeights:
    """Raises SafetensorsError if it is no head for a model of that width and vocabulary."""
    tensors = read_safetensors(path)
    names = ("in.weight", "out.weight", "state_norm.weight", "token_norm.weight")
    if missing := [name for name in names if name not in tensors]:
        raise SafetensorsError(f"{path.name} is no draft head: it lacks {', '.join(missing)}")
    inner, outer, state_norm, token_norm = (np.ascontiguousarray(tensors[name].floats()) for name in names)
    shapes = [array.shape for array in (inner, outer, state_norm, token_norm)]
    inside = len(inner)
    if shapes != [(inside, 2 * width), (width, inside), (width,), (width,)]:
        raise SafetensorsError(
            f"{path.name} is a draft head of other sizes ({shapes}) than the model's width of {width}"
        )
    vocabulary = _vocabulary(path, tensors, vocab_size)
    return HeadWeights(round_to(W4, inner), round_to(W4, outer), state_norm, token_norm, vocabulary)


def _vocabulary(path: Path, tensors: Mapping[str, StoredTensor], vocab_size: int) -> I64 | None:
    if (stored := tensors.get("vocabulary")) is None:
        return None
    ids = stored.array()
    if ids.dtype.kind not in "iu" or ids.ndim != 1 or not ids.size:
        raise SafetensorsError(f"{path.name}: its vocabulary is no list of token ids")
    ids = ids.astype(np.int64)
    if ids[0] < 0 or ids[-1] >= vocab_size or (np.diff(ids) <= 0).any():
        raise SafetensorsError(f"{path.name}: its vocabulary is not in ascending order within {vocab_size} ids")
    return ids


@dataclass(eq=False)
class _Sample:
    params: SamplingParams
    seed: int
    num_tokens: int
    last: int
    state: F32 | None = None


class DraftHead:
    """A Drafter."""

    def __init__(self, backend: Backend, model: Model, weights: HeadWeights) -> None:
        ids = weights.vocabulary
        self._backend, self._model, self._weights = backend, model, weights
        self._inner, self._outer = pack(backend, weights.inner), pack(backend, weights.outer)
        self._guessing = model if ids is None else replace(model, head=model.head.only(backend, ids))
        self._sampler, self._workspace = Sampler(backend), Workspace()
        self._samples: dict[SampleKey, _Sample] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        params = replace(request.params, logprobs=None, grammar=None)
        seed = sample_seed(request.params.seed or 0, key.sample)
        self._samples[key] = _Sample(params, seed, len(tokens), tokens[-1])

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        sample = self._samples[key]
        sample.num_tokens += len(tokens)
        sample.last = tokens[-1]
        sample.state = None if state is None else state.copy()

    def end(self, key: SampleKey) -> None:
        self._samples.pop(key, None)

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [NO_DRAFT if self._samples[key].state is None else DraftOffer(max_depth) for key in keys]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """All samples together, a token of each at a time."""
        drafts: dict[SampleKey, list[int]] = {key: [] for key in depths}
        left = list(depths)
        states = np.array([self._samples[key].state for key in left], np.float32)
        while left:
            samples = [self._samples[key] for key in left]
            last = [drafts[key][-1] if drafts[key] else self._samples[key].last for key in left]
            states = self.step(states, np.array(last, np.int64))
            logits = self.logits(states)
            positions = [sample.num_tokens + len(drafts[key]) for key, sample in zip(left, samples, strict=True)]
            draws = [Draw(row, own.params, own.seed, positions[row]) for row, own in enumerate(samples)]
            for key, drawn in zip(left, self._sampler.draw(logits, draws), strict=True):
                drafts[key].append(drawn.token)
            going = [drafts[key][-1] >= 0 and len(drafts[key]) < depths[key] for key in left]
            left, states = [key for key, goes in zip(left, going, strict=True) if goes], states[going]
        return {key: tuple(token for token in tokens if token >= 0) for key, tokens in drafts.items()}

    def logits(self, states: F32) -> F32:
        """Of all ids, since noise, penalties and filters go by id: minus infinity where it does not guess."""
        logits = self._guessing.logits(self._backend, states, self._workspace)
        if self._weights.vocabulary is None:
            return logits
        spread = self._workspace.floats("spread logits", len(states), self._model.config.vocab_size)
        spread.fill(-np.inf)
        spread[:, self._weights.vocabulary] = logits
        return spread

    def step(self, states: F32, tokens: I64) -> F32:
        """The states after these tokens."""
        backend, model, weights = self._backend, self._model, self._weights
        form, width = model.norm.form, model.config.width
        joined = np.empty((len(states), 2 * width), np.float32)
        embedded = embed(backend, tokens, model.embeddings, model.config.embedding_scale)
        norm(backend, form, np.ascontiguousarray(states), weights.state_norm, y=joined[:, :width])
        norm(backend, form, embedded, weights.token_norm, y=joined[:, width:])
        inside = linear(backend, quantise(backend, joined), self._inner)
        glu(backend, GluForm("silu"), inside, y=inside)
        return linear(backend, quantise(backend, inside), self._outer, residual=np.ascontiguousarray(states))
