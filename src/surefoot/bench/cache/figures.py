"""Figures of the prompt cache on disk."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from surefoot.bench.cache.sessions import TimedRun
from surefoot.bench.harness.figures import Figure, Target, percentile

SMALL_SHARE, LARGE_SHARE = 0.1, 0.03  # of a cold prompt's time; a small model computes faster, from as many bytes
WRITE_COST, GAP_GROWTH = 0.03, 0.1  # at most


@dataclass
class CacheRuns:
    """What was measured."""

    cold: list[TimedRun] = field(default_factory=list)  # of long prompts
    restart: list[TimedRun] = field(default_factory=list)  # the same after a restart
    swap: list[TimedRun] = field(default_factory=list)  # after the model was unloaded and loaded again
    pressure: list[TimedRun] = field(default_factory=list)  # after other prompts took the memory
    plain: list[TimedRun] = field(default_factory=list)  # many users, nothing is kept
    writing: list[TimedRun] = field(default_factory=list)
    busy_tokens: int = 0  # of one such run
    write_cpu_s: float = 0.0  # for keeping blocks, of all runs that write
    kept_bytes: int = 0
    kept_tokens: int = 0
    num_compared: int = 0
    num_equal: int = 0

    def compare(self, expected: TimedRun, found: TimedRun) -> None:
        """Tokens and bits of logprobs."""
        self.num_compared += len(expected.answers)
        self.num_equal += sum(found.answers.get(key) == answer for key, answer in expected.answers.items())

    @property
    def writing_cpu_s(self) -> float:
        """Processor time of all runs that write."""
        return sum(run.cpu_seconds for run in self.writing)

    def busy_facts(self) -> dict[str, list[float]]:
        """Each run of many users: seconds, processor seconds, 99th percentile of gaps."""
        return {
            f"{kind}_{name}": values
            for kind, runs in (("plain", self.plain), ("writing", self.writing))
            for name, values in (
                ("s", [run.seconds for run in runs]),
                ("cpu_s", [run.cpu_seconds for run in runs]),
                ("gap_p99_s", [gap_p99([run]) for run in runs]),
            )
        }


@dataclass(frozen=True)
class Predictions:
    """The figures as bandwidths measured in the same run foretell them."""

    restart_ttft_share: float
    swap_ttft_share: float
    pressure_ttft_share: float
    write_overhead: float
    write_cpu_overhead: float
    write_cpu_share: float
    gap_growth: float
    hit_equals_miss: float
    disk_bytes_per_token: float


def cache_figures(runs: CacheRuns, is_small: bool) -> list[Figure]:
    share = Target(SMALL_SHARE if is_small else LARGE_SHARE, at_least=False)
    cost, gaps = Target(WRITE_COST, at_least=False), Target(GAP_GROWTH, at_least=False)
    first = "time to the first token, of a cold prompt's:"
    return [
        Figure("restart_ttft_share", f"{first} after a restart", _ttft_share(runs, runs.restart), share),
        Figure("swap_ttft_share", f"{first} after a swap of models", _ttft_share(runs, runs.swap), share),
        Figure("pressure_ttft_share", f"{first} fallen out of memory", _ttft_share(runs, runs.pressure), share),
        Figure("write_overhead", "time that writing adds to 32 users", _growth(runs, lambda run: run.seconds), cost),
        Figure("write_cpu_overhead", "processor time that it adds", _growth(runs, lambda run: run.cpu_seconds), cost),
        Figure("write_cpu_share", "processor time of copying and writing, of all", _cpu_share(runs), cost),
        Figure("gap_growth", "what it adds to the 99th percentile of gaps", _gap_growth(runs), gaps),
        Figure("hit_equals_miss", "answers with the same bits", runs.num_equal / runs.num_compared, Target(1.0)),
        Figure("disk_bytes_per_token", "bytes on disk for a token", runs.kept_bytes / max(runs.kept_tokens, 1)),
    ]


def gap_p99(runs: Sequence[TimedRun]) -> float:
    return percentile([seconds for run in runs for seconds in run.step_seconds], 0.99) or float("inf")


def _ttft_share(runs: CacheRuns, found: Sequence[TimedRun]) -> float:
    """The median over prompts."""
    pairs = zip(found, runs.cold, strict=True)
    return statistics.median([warm.first_token_s / cold.first_token_s for warm, cold in pairs])


def _growth(runs: CacheRuns, cost: Callable[[TimedRun], float]) -> float:
    """The median over rounds."""
    rounds = zip(runs.writing, runs.plain, strict=True)
    return statistics.median([cost(writing) / cost(plain) for writing, plain in rounds]) - 1


def _cpu_share(runs: CacheRuns) -> float:
    return runs.write_cpu_s / max(runs.writing_cpu_s, 1e-9)


def _gap_growth(runs: CacheRuns) -> float:
    return gap_p99(runs.writing) / gap_p99(runs.plain) - 1
