"""A head on the target's hidden state, taught to foresee the target's next states from its own answers.

The same arithmetic as `runner.draft_head`, in torch. A step of training lets the head step on by a token from
the target's states, and compares what the target's norm and head say of its states and of the target's next ones: KL
over the vocabulary that the head guesses from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.api import LLM
from surefoot.compress.answers import Answer
from surefoot.compress.arrays import save_arrays
from surefoot.compress.distill import Settings, chosen, divergence
from surefoot.compress.forward import Forward
from surefoot.compress.later import Tensor, torch
from surefoot.models import Workspace
from surefoot.ops import embed
from surefoot.ops.arrays import F32, I64

DEPTH = 3  # tokens that the head is judged by
ROWS = 128  # judged at once
REGRESSION = 0.1  # the part of the states' own distance in the loss


class Target:
    """What a head takes from its target: rows of embeddings and of the head, the last norm."""

    def __init__(self, llm: LLM) -> None:
        self._llm, self._forward = llm, Forward(llm.config)
        self._norm = torch.tensor(llm.model.norm.weight)
        self._workspace = Workspace()
        self.width = llm.config.width

    def embeddings(self, tokens: I64) -> F32:
        return embed(self._llm.backend, tokens, self._llm.model.embeddings, self._llm.config.embedding_scale)

    def head(self, tokens: I64) -> Tensor:
        return torch.from_numpy(self._llm.model.head.rows(self._llm.backend, tokens)).bfloat16()

    def logits(self, states: Tensor) -> F32:
        """All of them, as the target gives them."""
        rows = states.float().numpy()
        return self._llm.model.logits(self._llm.backend, rows, self._workspace)

    def some_logits(self, states: Tensor, head: Tensor) -> Tensor:
        return self._forward.logits(states, self._norm, head)

    def unit(self, x: Tensor) -> Tensor:
        """The target's norm without its weight."""
        return self._forward.norm(x, torch.tensor(1.0 - self._forward.config.norm.weight_offset))


def choose_vocabulary(answers: Sequence[Answer], vocab_size: int, size: int) -> I64:
    """The ids that stand in the answers most often, in ascending order. Those that do not, by their numbers: tokenizers
    give the small ones to what is frequent."""
    counts = np.bincount(torch.cat([one.tokens for one in answers]).numpy(), minlength=vocab_size)
    return np.sort(np.argsort(-counts, kind="stable")[:size])


class Head:
    """scale: of the states. `out.weight` is learned in units of it, or the steps would be too small for it."""

    def __init__(self, target: Target, inside: int, scale: float, seed: int) -> None:
        width, generator = target.width, torch.Generator().manual_seed(seed)
        inner = torch.randn(inside, 2 * width, generator=generator) / (2 * width) ** 0.5
        self._target, self._scale = target, scale
        self._inner, self._outer = inner, torch.zeros(width, inside)
        self._state_norm, self._token_norm = torch.ones(width), torch.ones(width)
        for parameter in self.parameters().values():
            parameter.requires_grad_()

    def parameters(self) -> dict[str, Tensor]:
        return {
            "in.weight": self._inner,
            "out.weight": self._outer,
            "state_norm.weight": self._state_norm,
            "token_norm.weight": self._token_norm,
        }

    def step(self, states: Tensor, embedded: Tensor) -> Tensor:
        unit, linear = self._target.unit, torch.nn.functional.linear
        given = torch.cat([unit(states) * self._state_norm, unit(embedded) * self._token_norm], dim=-1)
        inside = torch.nn.functional.silu(linear(given.bfloat16(), self._inner.bfloat16()))
        return states + self._scale * linear(inside, self._outer.bfloat16()).float()

    def save(self, vocabulary: I64, path: Path) -> None:
        arrays = {name: one.detach().numpy() for name, one in self.parameters().items()}
        arrays["out.weight"] = arrays["out.weight"] * np.float32(self._scale)
        save_arrays({**arrays, "vocabulary": vocabulary.astype(np.int32)}, path, {})


@dataclass(frozen=True)
class Lesson:
    """Answers end to end, the tokens' embeddings (of those that occur) and where there are DEPTH states more."""

    states: Tensor
    tokens: Tensor
    table: Tensor
    rows: Tensor  # of the table, by place
    places: Tensor

    @classmethod
    def of(cls, target: Target, answers: Sequence[Answer]) -> "Lesson":
        states, tokens = (torch.cat(parts) for parts in zip(*((a.states, a.tokens) for a in answers), strict=True))
        occurring, rows = torch.unique(tokens, return_inverse=True)
        table = torch.from_numpy(target.embeddings(occurring.numpy())).bfloat16()
        ends = np.cumsum([len(one.tokens) for one in answers])
        starts = ends - [len(one.tokens) for one in answers]
        spans = [torch.arange(a, max(a, b - DEPTH)) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return cls(states, tokens, table, rows, torch.cat(spans))

    def embedded(self, places: Tensor) -> Tensor:
        return self.table[self.rows[places]].float()


def loss_of(head: Head, target: Target, lesson: Lesson, rows: Tensor, step: int, settings: Settings) -> Tensor:
    """rows: of the target's head, those of the vocabulary."""
    places = lesson.places[chosen(len(lesson.places), step, settings)]
    states = head.step(lesson.states[places].float(), lesson.embedded(places))
    wanted = lesson.states[places + 1].float()
    with torch.no_grad():
        expected = logits_of(target, wanted, rows)
    apart = torch.nn.functional.smooth_l1_loss(target.unit(states), target.unit(wanted))
    return divergence(expected, logits_of(target, states, rows), settings.reverse) + REGRESSION * apart


def logits_of(target: Target, states: Tensor, rows: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return target.some_logits(states, rows).float()


def likeliest(target: Target, lesson: Lesson) -> Tensor:
    """The target's own, by place."""
    return torch.cat([torch.from_numpy(target.logits(rows).argmax(axis=-1)) for rows in lesson.states.split(ROWS)])


def accepted(
    head: Head, target: Target, lesson: Lesson, expected: Tensor, vocabulary: I64, rows: Tensor
) -> tuple[float, ...]:
    """The shares of places where the head's first guess is the expected token; its first two; and so on."""
    ids, right = torch.from_numpy(vocabulary), torch.zeros(DEPTH)
    with torch.no_grad():
        for places in lesson.places.split(ROWS):
            states, so_far = lesson.states[places].float(), torch.ones(len(places), dtype=torch.bool)
            for depth in range(DEPTH):
                states = head.step(states, lesson.embedded(places + depth))
                guesses = ids[logits_of(target, states, rows).argmax(dim=-1)]
                so_far &= guesses == expected[places + depth + 1]
                right[depth] += so_far.sum()
    return tuple((right / len(lesson.places)).tolist())
