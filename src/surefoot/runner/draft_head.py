"""A small recurrent head on the target's hidden state. Each token updates the state.

    u = [norm(state) * state_norm, norm(embedding of the token) * token_norm]
    state = state + out · silu(in · u)
    logits = the target's output head applied to that state

The first state is the target's hidden state that the sample's last token was drawn from. The head keeps nothing between
steps, so there is nothing to roll back when drafts are rejected.

The file is safetensors with in.weight [m, 2 width], out.weight [width, m], state_norm.weight and token_norm.weight
[width], in any float type. An optional tensor vocabulary [ids] lists the token ids that may be drafted, in ascending
order. With it, only these rows of the target's output head are read, from a copy in four bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from surefoot.formats import W4, round_to
from surefoot.models import Model, Workspace
from surefoot.ops import Backend, GluForm, IntegerWeights, embed, glu, linear, norm, pack, quantise
from surefoot.ops.arrays import F32, I64
from surefoot.weights.safetensors import SafetensorsError, StoredTensor, read_safetensors


@dataclass(frozen=True)
class HeadWeights:
    """Weights of a draft head. The matrices have four bits: a draft need not be exact, and every draft reads them."""

    inner: IntegerWeights  # [m, 2 width]
    outer: IntegerWeights  # [width, m]
    state_norm: F32  # [width]
    token_norm: F32  # [width]
    vocabulary: I64 | None = None  # token ids that may be drafted; None: all


def load_head(path: Path, width: int, vocab_size: int) -> HeadWeights:
    """The head in this file. Raises SafetensorsError if it does not fit a model of this width and vocabulary."""
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


class DraftHead:
    """Implements StateGuesser with a draft head."""

    max_depth = None

    def __init__(self, backend: Backend, model: Model, weights: HeadWeights) -> None:
        ids = weights.vocabulary
        self._backend, self._model, self._weights = backend, model, weights
        self._inner, self._outer = pack(backend, weights.inner), pack(backend, weights.outer)
        self._draft_model = model if ids is None else replace(model, head=model.head.only(backend, ids))
        self._workspace = Workspace()

    def guess(self, states: F32, tokens: I64, depth: int) -> tuple[F32, F32]:
        states = self.step(states, tokens)
        return states, self.logits(states)

    def logits(self, states: F32) -> F32:
        """Logits [states, vocabulary size]: noise, penalties and filters go by token id. Ids that are never drafted get
        minus infinity."""
        logits = self._draft_model.logits(self._backend, states, self._workspace)
        if self._weights.vocabulary is None:
            return logits
        spread = self._workspace.floats("spread logits", len(states), self._model.config.vocab_size)
        spread.fill(-np.inf)
        spread[:, self._weights.vocabulary] = logits
        return spread

    def step(self, states: F32, tokens: I64) -> F32:
        """The next states: one token is appended to each."""
        backend, model, weights = self._backend, self._model, self._weights
        form, width = model.norm.form, model.config.width
        joined = np.empty((len(states), 2 * width), np.float32)
        embedded = embed(backend, tokens, model.embeddings, model.config.embedding_scale)
        norm(backend, form, np.ascontiguousarray(states), weights.state_norm, y=joined[:, :width])
        norm(backend, form, embedded, weights.token_norm, y=joined[:, width:])
        inside = linear(backend, quantise(backend, joined), self._inner)
        glu(backend, GluForm("silu"), inside, y=inside)
        return linear(backend, quantise(backend, inside), self._outer, residual=np.ascontiguousarray(states))
