"""Two models under load, with fixed splits of the cores and with the front's sharing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sharing.arrangements import SHARED, Arrangement, fixed_splits, serving, unshared
from benchmarks.sharing.load import PairLoad, run_load
from surefoot.bench.harness.figures import Figure, Target
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.machine import usable_cores


@dataclass(frozen=True)
class SharingSettings:
    """How much is measured."""

    num_rounds: int = 5
    loads: tuple[PairLoad, ...] = (PairLoad("even", (8, 8), 64), PairLoad("uneven", (12, 4), 64))


QUICK = SharingSettings(1, (PairLoad("even", (4, 4), 16), PairLoad("uneven", (6, 2), 16)))


@dataclass
class SharingRuns:
    """What was measured. seconds: of each round, by load and arrangement."""

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    num_answers: int = 0
    num_identical: int = 0  # answers equal to those of the first run
    _expected: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, load: PairLoad, arrangement: Arrangement, seconds: float, answers: list[Any]) -> None:
        self.seconds.setdefault(load.name, {}).setdefault(arrangement.name, []).append(seconds)
        expected = self._expected.setdefault(load.name, answers)
        self.num_answers += len(answers)
        self.num_identical += sum(answer == first for answer, first in zip(answers, expected, strict=True))


def run_sharing(models: tuple[str, str], settings: SharingSettings, num_cores: int | None, say: Say) -> BenchResults:
    run = RunFacts()
    num_cores = num_cores or usable_cores()
    splits, runs = fixed_splits(num_cores), SharingRuns()
    arrangements = list(dict.fromkeys([*splits, unshared(num_cores), SHARED]))
    for number in range(settings.num_rounds):
        turn = number % len(arrangements)  # no arrangement is always first
        for arrangement in [*arrangements[turn:], *arrangements[:turn]]:
            say(f"round {number + 1} of {settings.num_rounds}: {arrangement.name}")
            measure(models, arrangement, num_cores, settings.loads, runs)
    described = {"paths": [Path(model).name for model in models], "cores": num_cores, "seconds": runs.seconds}
    return BenchResults({}, sharing_figures(runs, splits, unshared(num_cores)), described, {}, {}, run.facts())


def measure(
    models: Sequence[str], arrangement: Arrangement, num_cores: int, loads: Sequence[PairLoad], runs: SharingRuns
) -> None:
    """Every load once, after answers that are not timed: first steps take longer."""
    with serving(models, arrangement, num_cores) as served:
        run_load(served, PairLoad("warm-up", (2, 2), 4))
        for load in loads:
            run = run_load(served, load)
            runs.add(load, arrangement, run.seconds, run.answers)


def sharing_figures(runs: SharingRuns, splits: Sequence[Arrangement], alone: Arrangement) -> list[Figure]:
    figures = [
        Figure("answers_identical", "answers equal in every arrangement", runs.num_identical / max(1, runs.num_answers),
               Target(1.0))
    ]  # fmt: skip
    for load, seconds in runs.seconds.items():
        best_split = min(best(seconds, split) for split in splits)
        figures += [
            Figure(
                f"{load}_of_best_split", f"{load} load: speed of sharing, of the best fixed split",
                best_split / best(seconds, SHARED), Target(0.9),
            ),
            Figure(
                f"{load}_of_unshared", f"{load} load: speed of sharing, of threads for all cores in both",
                best(seconds, alone) / best(seconds, SHARED),
            ),
        ]  # fmt: skip
    return figures


def best(seconds: Mapping[str, Sequence[float]], arrangement: Arrangement) -> float:
    """Of all rounds: other programs only ever add time."""
    return min(seconds[arrangement.name])
