"""Compares models with an original: sizes, and the difference of predictions, greedy continuations and layers' outputs.

The original runs in float32. Its speed as served is measured separately (speed.py)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.evaluate.engines import CHUNK, RunnerEngine
from surefoot.evaluate.perplexity import tally
from surefoot.evaluate.scores import Score, Tally
from surefoot.evaluate.speed import ServedSpeed
from surefoot.evaluate.windows import Windows
from surefoot.formats import ModelFormat
from surefoot.models import Model, load
from surefoot.models.step import Step
from surefoot.ops import Backend, KvForm
from surefoot.ops.arrays import F32
from surefoot.runner import SessionRunner, Work
from surefoot.weights import Checkpoint

LENGTHS = (1, 2, 4, 8, 16, 32, 64)  # tokens of a continuation that agreement is reported at
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)  # quantiles of the divergence
PROMPTS = 16  # maximum number of prompts to continue
LAYER_TOKENS = 256  # tokens on which layers' outputs are compared


@dataclass(frozen=True)
class EvaluatedModel:
    """A model loaded in the arithmetic that it is evaluated in."""

    name: str  # in reports
    nbytes: int  # of its files
    arithmetic: str  # "float32" or "integers"
    model: Model  # its layers and weights
    runner: SessionRunner  # runs it

    @classmethod
    def of(
        cls, backend: Backend, name: str, path: Path, checkpoint: Checkpoint, fmt: ModelFormat, context: int
    ) -> "EvaluatedModel":
        model = load(backend, checkpoint, fmt)
        in_float = fmt.weights is None
        form = KvForm.TWO_LIMBS if in_float else KvForm.KEYS_TWO_LIMBS
        size = context + max(LENGTHS)
        runner = SessionRunner.make(
            backend, model, num_tokens=size, max_sessions=1, max_chunk=CHUNK, kv_form=form, record=not in_float
        )
        return cls(name, file_bytes(path), "float32" if in_float else "integers", model, runner)

    @property
    def engine(self) -> RunnerEngine:
        return RunnerEngine(self.name, self.runner)


def file_bytes(path: Path) -> int:
    files = [file for file in path.iterdir() if file.suffix == ".safetensors"] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True)
class ComparedModel:
    """The figures of a model."""

    name: str  # in reports
    nbytes: int  # of its files
    arithmetic: str  # "float32" or "integers": what all figures but `served` were measured in
    score: Score  # perplexity, and divergence from the original
    divergence_shares: dict[float, float]  # quantiles of the divergence: each share of positions is below
    agreement: dict[int, float]  # by length: share of prompts whose continuation equals the original's for that length
    mean_agreed: float  # tokens of a continuation before the first that differs from the original's
    layer_errors: list[float]  # after each layer, the rms of the stream's difference over the rms of the original's
    served: ServedSpeed | None = None  # speed through `LLM`, if measured


@dataclass(frozen=True)
class Comparison:
    """The figures of all models, and the size of the text."""

    num_windows: int  # of the text
    num_tokens: int  # in all windows
    num_continued: int  # prompts
    models: list[ComparedModel]  # the original first

    def with_speeds(self, speeds: Sequence[ServedSpeed]) -> "Comparison":
        """A copy with the speed of each model, in the order of `models`."""
        models = [replace(model, served=speed) for model, speed in zip(self.models, speeds, strict=True)]
        return replace(self, models=models)


def compare(
    windows: Windows,
    original: EvaluatedModel,
    others: Sequence[EvaluatedModel],
    num_new: int = 32,
    advance: Callable[[int], None] = lambda num_tokens: None,
) -> Comparison:
    """Compares `others` with `original`. advance: called after each step with its number of tokens."""
    tallies = tally(windows, [model.engine for model in others], original.engine, advance)
    prompts = [window[: len(window) // 2 + 1] for window in windows[:PROMPTS]]
    expected = continuations(original, prompts, num_new)
    states = layer_states(original, windows[0][:LAYER_TOKENS])
    models = [_compared(original, tallies[original.name], expected, expected, [])]
    for model in others:
        actual = continuations(model, prompts, num_new)
        errors = relative_errors(states, layer_states(model, windows[0][:LAYER_TOKENS]))
        models.append(_compared(model, tallies[model.name], expected, actual, errors))
    return Comparison(len(windows), sum(map(len, windows)), len(prompts), models)


def _compared(
    model: EvaluatedModel, counted: Tally, expected: Windows, actual: Windows, errors: list[float]
) -> ComparedModel:
    agreed = [agreed_length(a, b) for a, b in zip(expected, actual, strict=True)]
    longest = max(map(len, expected))
    return ComparedModel(
        name=model.name,
        nbytes=model.nbytes,
        arithmetic=model.arithmetic,
        score=counted.score(),
        divergence_shares={q: float(np.quantile(counted.divergences, q)) for q in SHARES if counted.divergences},
        agreement={n: sum(length >= n for length in agreed) / len(agreed) for n in LENGTHS if n <= longest},
        mean_agreed=sum(agreed) / len(agreed),
        layer_errors=errors,
    )


def agreed_length(expected: Sequence[int], actual: Sequence[int]) -> int:
    """The number of tokens before the first that differs."""
    same = [a == b for a, b in zip(expected, actual, strict=False)]
    return same.index(False) if False in same else len(same)


def continuations(model: EvaluatedModel, prompts: Windows, num_new: int) -> list[list[int]]:
    """Each prompt's greedy continuation."""
    return [model.runner.generate(prompt, num_new) for prompt in prompts]


def layer_states(loaded: EvaluatedModel, tokens: Sequence[int]) -> list[F32]:
    """The residual stream after each layer, [tokens, width]."""
    states: list[F32] = []

    def recorded(layer: Callable[[Step], None]) -> Callable[[Step], None]:
        def run(step: Step) -> None:
            layer(step)
            states.append(step.settle().copy())

        return run

    model = replace(loaded.model, layers=tuple(map(recorded, loaded.model.layers)))
    runner = SessionRunner.make(
        loaded.runner.runner.backend, model, num_tokens=len(tokens), max_sessions=1, max_chunk=len(tokens),
        kv_form=KvForm.TWO_LIMBS, record=False,
    )  # fmt: skip
    session = runner.open(len(tokens))
    runner.execute([Work(session, tokens, 1)])
    runner.close(session)
    return states


def relative_errors(expected: Sequence[F32], actual: Sequence[F32]) -> list[float]:
    """The relative rms error of each layer's output. The first token is left out: models put huge values there, next to
    which all errors look small."""
    pairs = [(a[1:].astype(np.float64), b[1:].astype(np.float64)) for a, b in zip(expected, actual, strict=True)]
    return [float(np.sqrt(((a - b) ** 2).mean() / (a**2).mean())) for a, b in pairs]


def as_json(comparison: Comparison) -> dict[str, Any]:
    return asdict(comparison)
