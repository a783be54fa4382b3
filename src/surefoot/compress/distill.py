"""A pruned copy of a model taught by the model itself: a draft whose guesses the target accepts.

The loss mixes KL(teacher || student), which covers all that the teacher might say, and KL(student || teacher), which
keeps the student from saying what it would not. Embeddings and head are the teacher's own and stay as they are.
State is saved in safetensors as training goes on, so that it can be stopped at any moment and go on from there.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.compress.arrays import load_arrays, save_arrays
from surefoot.compress.forward import Forward, as_tensor, head_name, layer_weights
from surefoot.compress.later import Tensor, torch
from surefoot.compress.prune import Cut, cut_config, cut_weights
from surefoot.models import ModelConfig
from surefoot.weights import Checkpoint

SAVE_EVERY_S = 60.0


@dataclass(frozen=True)
class Settings:
    steps: int
    rate: float = 3e-4
    warm_up: int = 20
    reverse: float = 0.3  # the part of KL(student || teacher)
    batch: int = 2  # windows a step; for a head, tokens
    seed: int = 0


@dataclass
class Progress:
    step: int
    loss: float
    agreement: float | None = None  # share of held-out positions whose likeliest token is the teacher's


class Teacher:
    """The whole model in float32, to be asked for logits."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig) -> None:
        self.forward = Forward(config)
        self.embeddings = as_tensor(checkpoint, "token_embd.weight")
        self.head = as_tensor(checkpoint, head_name(checkpoint))
        self.norm = as_tensor(checkpoint, "output_norm.weight")
        self._layers = [layer_weights(checkpoint, number) for number in range(len(config.layers))]

    def logits(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            h = self.forward.embed(self.embeddings, tokens)
            for number, weights in enumerate(self._layers):
                h = self.forward.layer(number, weights, h)
            return self.forward.logits(h, self.norm, self.head)


class Student:
    """The pruned layers and the last norm, which learn."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, cut: Cut, teacher: Teacher) -> None:
        self.forward = Forward(cut_config(config, cut))
        self.layers = cut_weights(checkpoint, cut)
        self.norm = teacher.norm.clone()
        self._embeddings, self._head = teacher.embeddings, teacher.head
        for parameter in self.parameters().values():
            parameter.requires_grad_()

    def parameters(self) -> dict[str, Tensor]:
        named = {f"blk.{i}.{name}": one for i, layer in enumerate(self.layers) for name, one in layer.items()}
        return {**named, "output_norm.weight": self.norm}

    def logits(self, tokens: Tensor) -> Tensor:
        h = self.forward.embed(self._embeddings, tokens)
        for number, weights in enumerate(self.layers):
            h = self.forward.layer(number, weights, h)
        return self.forward.logits(h, self.norm, self._head)


def divergence(teacher: Tensor, student: Tensor, reverse: float) -> Tensor:
    """Mean over positions of (1 - r) KL(teacher || student) + r KL(student || teacher)."""
    p, q = torch.log_softmax(teacher, dim=-1), torch.log_softmax(student, dim=-1)
    onward = (p.exp() * (p - q)).sum(dim=-1).mean()
    if reverse == 0:
        return onward
    back = (q.exp() * (q - p)).sum(dim=-1).mean()
    return (1 - reverse) * onward + reverse * back


def agreement(teacher: Teacher, student: Student, windows: Sequence[Sequence[int]]) -> float:
    """How often the student's likeliest token is the teacher's: what greedy speculation accepts, token by token."""
    same = total = 0
    with torch.no_grad():
        for window in windows:
            tokens = torch.tensor([window])
            expected, got = teacher.logits(tokens).argmax(dim=-1), student.logits(tokens).argmax(dim=-1)
            same, total = same + int((expected == got).sum()), total + expected.numel()
    return same / total


def teach(
    teacher: Teacher,
    student: Student,
    windows: Sequence[Sequence[int]],
    settings: Settings,
    state: Path,
    say: Callable[[Progress], None] = lambda progress: None,
) -> None:
    def loss_of(step: int) -> Tensor:
        tokens = torch.tensor([windows[number] for number in chosen(len(windows), step, settings)])
        return divergence(teacher.logits(tokens), student.logits(tokens), settings.reverse)

    train(student.parameters(), loss_of, settings, state, say)


def train(
    parameters: Mapping[str, Tensor],
    loss_of: Callable[[int], Tensor],
    settings: Settings,
    state: Path,
    say: Callable[[Progress], None] = lambda progress: None,
) -> None:
    """Up to `steps` steps, from where `state` says that training stood. loss_of: a step's, a function of its number."""
    optimiser = torch.optim.AdamW(list(parameters.values()), lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.0)
    done = step = _resume(state, parameters, optimiser)
    saved, shown = time.monotonic(), 0.0
    try:
        while step < settings.steps:
            loss = _learn(parameters, loss_of(step), optimiser, settings.rate * _schedule(step, settings))
            shown = loss if step == done else 0.95 * shown + 0.05 * loss
            step += 1
            say(Progress(step, shown))
            if time.monotonic() - saved > SAVE_EVERY_S:
                _save(state, parameters, optimiser, step)
                saved = time.monotonic()
    finally:  # stopped by hand too
        if step > done:
            _save(state, parameters, optimiser, step)


def _learn(parameters: Mapping[str, Tensor], loss: Tensor, optimiser: Any, rate: float) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
    optimiser.step()
    return float(loss.detach())


def _schedule(step: int, settings: Settings) -> float:
    """Up in a line, down to a tenth along a cosine."""
    if step < settings.warm_up:
        return (step + 1) / settings.warm_up
    along = (step - settings.warm_up) / max(1, settings.steps - settings.warm_up)
    return 0.1 + 0.45 * (1 + float(torch.cos(torch.tensor(along * torch.pi))))


def chosen(total: int, step: int, settings: Settings) -> list[int]:
    """Which of so many a step learns from: a function of the seed and the step, so that training that was stopped goes
    on with the same."""
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    numbers: list[int] = torch.randint(total, (settings.batch,), generator=generator).tolist()
    return numbers


def _save(state: Path, parameters: Mapping[str, Tensor], optimiser: Any, step: int) -> None:
    arrays = {f"weight.{name}": one.detach().numpy() for name, one in parameters.items()}
    for name, one in parameters.items():
        kept = optimiser.state[one]
        arrays |= {f"{key}.{name}": kept[key].numpy() for key in ("exp_avg", "exp_avg_sq")}
    save_arrays(arrays, state, {"step": json.dumps(step)})


def _resume(state: Path, parameters: Mapping[str, Tensor], optimiser: Any) -> int:
    if not state.exists():
        return 0
    arrays, metadata = load_arrays(state)
    step = int(json.loads(metadata["step"]))
    for name, one in parameters.items():
        with torch.no_grad():
            one.copy_(torch.from_numpy(arrays[f"weight.{name}"]))
        optimiser.state[one] = {
            "step": torch.tensor(float(step)),
            **{key: torch.from_numpy(arrays[f"{key}.{name}"].copy()) for key in ("exp_avg", "exp_avg_sq")},
        }
    return step
