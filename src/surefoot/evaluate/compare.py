"""Models against an original: what their predictions, their answers and their layers' states differ by, and what they
weigh. The original is run in float32; its speed as it is served is measured apart (speed.py)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.evaluate.engines import CHUNK, RunnerEngine
from surefoot.evaluate.perplexity import tally
from surefoot.evaluate.scores import Score, Tally
from surefoot.evaluate.speed import ServedSpeed
from surefoot.formats import ModelFormat
from surefoot.models import Model, load
from surefoot.models.step import Step
from surefoot.ops import Backend, KvForm
from surefoot.ops.arrays import F32
from surefoot.runner import Runner, Work
from surefoot.weights import Checkpoint

LENGTHS = (1, 2, 4, 8, 16, 32, 64)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
PROMPTS = 16  # that are continued
LAYER_TOKENS = 256  # on which states are compared

Windows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Opened:
    """A model ready to be asked, in the arithmetic that it is to be judged in."""

    name: str
    nbytes: int
    arithmetic: str
    model: Model
    runner: Runner

    @classmethod
    def of(
        cls, backend: Backend, name: str, path: Path, checkpoint: Checkpoint, fmt: ModelFormat, context: int
    ) -> "Opened":
        model = load(backend, checkpoint, fmt)
        in_float = fmt.weights is None
        form = KvForm.TWO_LIMBS if in_float else KvForm.KEYS_TWO_LIMBS
        size = context + max(LENGTHS)
        runner = Runner(
            backend, model, num_tokens=size, max_requests=1, max_chunk=CHUNK, kv_form=form, record=not in_float
        )
        return cls(name, file_bytes(path), "float32" if in_float else "integers", model, runner)

    @property
    def engine(self) -> RunnerEngine:
        return RunnerEngine(self.name, self.runner)


def file_bytes(path: Path) -> int:
    files = [one for one in path.iterdir() if one.suffix == ".safetensors"] if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files)


@dataclass(frozen=True)
class Compared:
    """arithmetic: of all figures but `served`: float32 or integers. served: its speed through `LLM`, if measured.
    agreement: the share of prompts whose greedy continuation equals the original's for so many tokens.
    layer_errors: rms of the difference of the stream after each layer, over the original's rms.
    divergence_shares: the divergence below which such a share of positions stays."""

    name: str
    nbytes: int
    arithmetic: str
    score: Score
    divergence_shares: dict[float, float]
    agreement: dict[int, float]
    mean_agreed: float
    layer_errors: list[float]
    served: ServedSpeed | None = None


@dataclass(frozen=True)
class Comparison:
    """The first of `models` is the original."""

    num_windows: int
    num_tokens: int
    num_continued: int
    models: list[Compared]

    def with_speeds(self, speeds: Sequence[ServedSpeed]) -> "Comparison":
        """speeds: one a model, in their order."""
        models = [replace(one, served=speed) for one, speed in zip(self.models, speeds, strict=True)]
        return replace(self, models=models)


def compare(
    windows: Windows,
    original: Opened,
    others: Sequence[Opened],
    num_new: int = 32,
    advance: Callable[[int], None] = lambda num_tokens: None,
) -> Comparison:
    tallies = tally(windows, [one.engine for one in others], original.engine, advance)
    prompts = [window[: len(window) // 2 + 1] for window in windows[:PROMPTS]]
    expected = continuations(original, prompts, num_new)
    states = layer_states(original, windows[0][:LAYER_TOKENS])
    models = [_compared(original, tallies[original.name], expected, expected, [])]
    for one in others:
        got = continuations(one, prompts, num_new)
        errors = relative_errors(states, layer_states(one, windows[0][:LAYER_TOKENS]))
        models.append(_compared(one, tallies[one.name], expected, got, errors))
    return Comparison(len(windows), sum(map(len, windows)), len(prompts), models)


def _compared(one: Opened, counted: Tally, expected: Windows, got: Windows, errors: list[float]) -> Compared:
    agreed = [agreed_length(a, b) for a, b in zip(expected, got, strict=True)]
    longest = max(map(len, expected))
    return Compared(
        name=one.name,
        nbytes=one.nbytes,
        arithmetic=one.arithmetic,
        score=counted.score(),
        divergence_shares={q: float(np.quantile(counted.divergences, q)) for q in SHARES if counted.divergences},
        agreement={n: sum(length >= n for length in agreed) / len(agreed) for n in LENGTHS if n <= longest},
        mean_agreed=sum(agreed) / len(agreed),
        layer_errors=errors,
    )


def agreed_length(expected: Sequence[int], got: Sequence[int]) -> int:
    """Tokens up to the first that differs."""
    same = [a == b for a, b in zip(expected, got, strict=False)]
    return same.index(False) if False in same else len(same)


def continuations(one: Opened, prompts: Windows, num_new: int) -> list[list[int]]:
    """Greedy."""
    return [one.runner.generate(prompt, num_new) for prompt in prompts]


def layer_states(one: Opened, tokens: Sequence[int]) -> list[F32]:
    """The stream after each layer, [tokens, width]."""
    states: list[F32] = []

    def tapped(layer: Callable[[Step], None]) -> Callable[[Step], None]:
        def run(step: Step) -> None:
            layer(step)
            states.append(step.settle().copy())

        return run

    model = replace(one.model, layers=tuple(map(tapped, one.model.layers)))
    runner = Runner(
        one.runner.backend, model, num_tokens=len(tokens), max_requests=1, max_chunk=len(tokens),
        kv_form=KvForm.TWO_LIMBS, record=False,
    )  # fmt: skip
    request = runner.open(len(tokens))
    runner.execute([Work(request, tokens, 1)])
    runner.close(request)
    return states


def relative_errors(expected: Sequence[F32], got: Sequence[F32]) -> list[float]:
    """The first token is left out: models park huge values there, beside which all errors look small."""
    pairs = [(a[1:].astype(np.float64), b[1:].astype(np.float64)) for a, b in zip(expected, got, strict=True)]
    return [float(np.sqrt(((a - b) ** 2).mean() / (a**2).mean())) for a, b in pairs]


def as_json(comparison: Comparison) -> dict[str, Any]:
    return asdict(comparison)
