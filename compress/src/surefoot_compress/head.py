"""A draft head in torch: it predicts the target's next hidden state, and is trained on the target's own answers.

The arithmetic is that of `runner.draft_head`. In each training step the head advances the target's states by one token.
The loss is the KL divergence between the target's logits of its true next states and of the predicted ones, over the
vocabulary that the head drafts from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.api import LLM
from surefoot.models import Workspace
from surefoot.ops import embed
from surefoot.ops.arrays import F32, I64
from surefoot_compress.answers import RecordedAnswer
from surefoot_compress.arrays import save_arrays
from surefoot_compress.distill import TrainingSettings, batch_indices, divergence
from surefoot_compress.forward import TorchForward
from surefoot_compress.lazy_torch import Tensor, torch

DEPTH = 3  # tokens drafted in evaluation
ROWS = 128  # positions evaluated at once
REGRESSION = 0.1  # weight of the distance between the states themselves in the loss


class HeadTarget:
    """What a draft head uses of its target: embeddings, the last norm, rows of the output head."""

    def __init__(self, llm: LLM) -> None:
        self._llm, self._forward = llm, TorchForward(llm.config)
        self._norm = torch.tensor(llm.model.norm.weight)
        self._workspace = Workspace()
        self.width = llm.config.width

    def embeddings(self, tokens: I64) -> F32:
        return embed(self._llm.backend, tokens, self._llm.model.embeddings, self._llm.config.embedding_scale)

    def head(self, tokens: I64) -> Tensor:
        return torch.from_numpy(self._llm.model.head.rows(self._llm.backend, tokens)).bfloat16()

    def logits(self, states: Tensor) -> F32:
        """Over the whole vocabulary, exactly as the target computes them."""
        rows = states.float().numpy()
        return self._llm.model.logits(self._llm.backend, rows, self._workspace)

    def some_logits(self, states: Tensor, head: Tensor) -> Tensor:
        """Over the tokens whose rows of the output head are given, in torch."""
        return self._forward.logits(states, self._norm, head)

    def unit(self, x: Tensor) -> Tensor:
        """The target's norm without its weight."""
        return self._forward.norm(x, torch.tensor(1.0 - self._forward.config.norm.weight_offset))


def choose_vocabulary(answers: Sequence[RecordedAnswer], vocab_size: int, size: int) -> I64:
    """The `size` token ids that occur most often in the answers, in ascending order. Ties, such as ids that never
    occur, go to the smaller id: tokenizers give small ids to frequent tokens."""
    counts = np.bincount(torch.cat([answer.tokens for answer in answers]).numpy(), minlength=vocab_size)
    return np.sort(np.argsort(-counts, kind="stable")[:size])


class TrainableHead:
    """A draft head under training. `out.weight` is trained in units of `scale`, the rms of the states: without it the
    optimiser's steps would be too small."""

    def __init__(self, target: HeadTarget, inside: int, scale: float, seed: int) -> None:
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
        """The predicted states after one more token, from states and embeddings of the tokens that follow."""
        unit, linear = self._target.unit, torch.nn.functional.linear
        inputs = torch.cat([unit(states) * self._state_norm, unit(embedded) * self._token_norm], dim=-1)
        inside = torch.nn.functional.silu(linear(inputs.bfloat16(), self._inner.bfloat16()))
        return states + self._scale * linear(inside, self._outer.bfloat16()).float()

    def save(self, vocabulary: I64, path: Path) -> None:
        arrays = {name: parameter.detach().numpy() for name, parameter in self.parameters().items()}
        arrays["out.weight"] = arrays["out.weight"] * np.float32(self._scale)
        save_arrays({**arrays, "vocabulary": vocabulary.astype(np.int32)}, path, {})


@dataclass(frozen=True)
class HeadExamples:
    """Answers, concatenated, as training or evaluation data."""

    states: Tensor  # [n, width]
    tokens: Tensor  # [n]
    embeddings: Tensor  # of the tokens that occur
    rows: Tensor  # [n], each token's row of `embeddings`
    positions: Tensor  # that at least DEPTH states of the same answer follow

    @classmethod
    def of(cls, target: HeadTarget, answers: Sequence[RecordedAnswer]) -> "HeadExamples":
        states, tokens = (torch.cat(parts) for parts in zip(*((a.states, a.tokens) for a in answers), strict=True))
        occurring, rows = torch.unique(tokens, return_inverse=True)
        embeddings = torch.from_numpy(target.embeddings(occurring.numpy())).bfloat16()
        lengths = [len(answer.tokens) for answer in answers]
        ends = np.cumsum(lengths)
        starts = ends - lengths
        spans = [torch.arange(a, max(a, b - DEPTH)) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return cls(states, tokens, embeddings, rows, torch.cat(spans))

    def embedded(self, positions: Tensor) -> Tensor:
        return self.embeddings[self.rows[positions]].float()


def loss_of(
    head: TrainableHead, target: HeadTarget, examples: HeadExamples, rows: Tensor, step: int, settings: TrainingSettings
) -> Tensor:
    """The loss of one step. `rows` are the rows of the target's output head for the vocabulary."""
    positions = examples.positions[batch_indices(len(examples.positions), step, settings)]
    states = head.step(examples.states[positions].float(), examples.embedded(positions))
    next_states = examples.states[positions + 1].float()
    with torch.no_grad():
        expected = logits_of(target, next_states, rows)
    distance = torch.nn.functional.smooth_l1_loss(target.unit(states), target.unit(next_states))
    return divergence(expected, logits_of(target, states, rows), settings.reverse) + REGRESSION * distance


def logits_of(target: HeadTarget, states: Tensor, rows: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return target.some_logits(states, rows).float()


def most_likely_tokens(target: HeadTarget, examples: HeadExamples) -> Tensor:
    """The target's likeliest next token at each position."""
    return torch.cat([torch.from_numpy(target.logits(rows).argmax(axis=-1)) for rows in examples.states.split(ROWS)])


def acceptance_rates(
    head: TrainableHead, target: HeadTarget, examples: HeadExamples, expected: Tensor, vocabulary: I64, rows: Tensor
) -> tuple[float, ...]:
    """The shares of positions where the first drafted token is right, where the first two are, and so on."""
    ids, counts = torch.from_numpy(vocabulary), torch.zeros(DEPTH)
    with torch.no_grad():
        for positions in examples.positions.split(ROWS):
            states, accepted = examples.states[positions].float(), torch.ones(len(positions), dtype=torch.bool)
            for depth in range(DEPTH):
                states = head.step(states, examples.embedded(positions + depth))
                drafted = ids[logits_of(target, states, rows).argmax(dim=-1)]
                accepted &= drafted == expected[positions + depth + 1]
                counts[depth] += accepted.sum()
    return tuple((counts / len(examples.positions)).tolist())
