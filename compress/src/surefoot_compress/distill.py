"""Distils a draft model from the target itself: a pruned copy, trained until the target accepts most of its tokens.

The loss mixes KL(teacher || student), which makes the student cover all that the teacher might say, and
KL(student || teacher), which keeps it from saying anything else. Embeddings and head are the teacher's own and are not
trained. Training state is saved to safetensors, so that training can be stopped at any moment and resumed.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.models import ModelConfig
from surefoot.weights import Checkpoint
from surefoot_compress.arrays import load_arrays, save_arrays
from surefoot_compress.forward import TorchForward, as_tensor, head_name, layer_weights
from surefoot_compress.lazy_torch import Tensor, torch
from surefoot_compress.prune import Pruning, pruned_config, pruned_weights

SAVE_EVERY_S = 60.0


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast to train."""

    steps: int  # in total, those before an interruption included
    rate: float = 3e-4  # the largest learning rate, after warm-up
    warm_up: int = 20  # steps
    reverse: float = 0.3  # weight of KL(student || teacher) in the loss; KL(teacher || student) has the rest
    batch: int = 2  # windows in a step; for a head, tokens
    seed: int = 0  # of the choice of batches


@dataclass
class TrainingProgress:
    """How far training has come."""

    step: int  # steps done
    loss: float  # moving average
    agreement: float | None = None  # share of held-out positions where student and teacher agree on the likeliest token


class Teacher:
    """The whole target in float32, for its logits."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig) -> None:
        self.forward = TorchForward(config)
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
    """The pruned copy. Its layers and the last norm are trained."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig, pruning: Pruning, teacher: Teacher) -> None:
        self.forward = TorchForward(pruned_config(config, pruning))
        self.layers = pruned_weights(checkpoint, pruning)
        self.norm = teacher.norm.clone()
        self._embeddings, self._head = teacher.embeddings, teacher.head
        for parameter in self.parameters().values():
            parameter.requires_grad_()

    def parameters(self) -> dict[str, Tensor]:
        named = {f"blk.{i}.{name}": weight for i, layer in enumerate(self.layers) for name, weight in layer.items()}
        return {**named, "output_norm.weight": self.norm}

    def logits(self, tokens: Tensor) -> Tensor:
        h = self.forward.embed(self._embeddings, tokens)
        for number, weights in enumerate(self.layers):
            h = self.forward.layer(number, weights, h)
        return self.forward.logits(h, self.norm, self._head)


def divergence(teacher: Tensor, student: Tensor, reverse: float) -> Tensor:
    """Mean over positions of (1 - reverse) KL(teacher || student) + reverse KL(student || teacher), from logits."""
    p, q = torch.log_softmax(teacher, dim=-1), torch.log_softmax(student, dim=-1)
    forward = (p.exp() * (p - q)).sum(dim=-1).mean()
    if reverse == 0:
        return forward
    backward = (q.exp() * (q - p)).sum(dim=-1).mean()
    return (1 - reverse) * forward + reverse * backward


def agreement(teacher: Teacher, student: Student, windows: Sequence[Sequence[int]]) -> float:
    """Share of positions where both agree on the likeliest token: the acceptance rate of greedy speculation."""
    same = total = 0
    with torch.no_grad():
        for window in windows:
            tokens = torch.tensor([window])
            expected, actual = teacher.logits(tokens).argmax(dim=-1), student.logits(tokens).argmax(dim=-1)
            same, total = same + int((expected == actual).sum()), total + expected.numel()
    return same / total


def teach(
    teacher: Teacher,
    student: Student,
    windows: Sequence[Sequence[int]],
    settings: TrainingSettings,
    state: Path,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
) -> None:
    """Trains the student on the teacher's predictions over the windows."""

    def loss_of(step: int) -> Tensor:
        tokens = torch.tensor([windows[number] for number in batch_indices(len(windows), step, settings)])
        return divergence(teacher.logits(tokens), student.logits(tokens), settings.reverse)

    train(student.parameters(), loss_of, settings, state, report)


def train(
    parameters: Mapping[str, Tensor],
    loss_of: Callable[[int], Tensor],
    settings: TrainingSettings,
    state: Path,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
) -> None:
    """Trains `parameters` up to step `settings.steps`, resuming from the file `state` if it exists.

    loss_of(step) must depend on the step's number alone, so that a resumed run takes the same steps."""
    optimiser = torch.optim.AdamW(list(parameters.values()), lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.0)
    done = step = _resume(state, parameters, optimiser)
    saved, average = time.monotonic(), 0.0
    try:
        while step < settings.steps:
            loss = _optimiser_step(parameters, loss_of(step), optimiser, settings.rate * _schedule(step, settings))
            average = loss if step == done else 0.95 * average + 0.05 * loss
            step += 1
            report(TrainingProgress(step, average))
            if time.monotonic() - saved > SAVE_EVERY_S:
                _save(state, parameters, optimiser, step)
                saved = time.monotonic()
    finally:  # also when interrupted from the keyboard
        if step > done:
            _save(state, parameters, optimiser, step)


def _optimiser_step(parameters: Mapping[str, Tensor], loss: Tensor, optimiser: Any, rate: float) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
    optimiser.step()
    return float(loss.detach())


def _schedule(step: int, settings: TrainingSettings) -> float:
    """The learning rate's factor: linear warm-up to 1, then a cosine down to a tenth."""
    if step < settings.warm_up:
        return (step + 1) / settings.warm_up
    along = (step - settings.warm_up) / max(1, settings.steps - settings.warm_up)
    return 0.1 + 0.45 * (1 + float(torch.cos(torch.tensor(along * torch.pi))))


def batch_indices(total: int, step: int, settings: TrainingSettings) -> list[int]:
    """The indices below `total` that a step trains on. They depend on the seed and the step alone, so that a resumed
    run takes the same batches."""
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    numbers: list[int] = torch.randint(total, (settings.batch,), generator=generator).tolist()
    return numbers


def _save(state: Path, parameters: Mapping[str, Tensor], optimiser: Any, step: int) -> None:
    arrays = {f"weight.{name}": parameter.detach().numpy() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        averages = optimiser.state[parameter]
        arrays |= {f"{key}.{name}": averages[key].numpy() for key in ("exp_avg", "exp_avg_sq")}
    save_arrays(arrays, state, {"step": json.dumps(step)})


def _resume(state: Path, parameters: Mapping[str, Tensor], optimiser: Any) -> int:
    if not state.exists():
        return 0
    arrays, metadata = load_arrays(state)
    step = int(json.loads(metadata["step"]))
    for name, parameter in parameters.items():
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(arrays[f"weight.{name}"]))
        optimiser.state[parameter] = {
            "step": torch.tensor(float(step)),
            **{key: torch.from_numpy(arrays[f"{key}.{name}"].copy()) for key in ("exp_avg", "exp_avg_sq")},
        }
    return step
