"""Figures of the prompt cache on disk."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.cache.sessions import TimedRun
from benchmarks.cache.write_cost import WriteCost
from surefoot.bench.harness.figures import Figure, Target

SMALL_SHARE, LARGE_SHARE = 0.1, 0.03  # of a cold prompt's time; a small model computes faster, from as many bytes
WRITE_COST, GAP_GROWTH = 0.03, 0.1  # at most


@dataclass
class CacheRuns:
    """What was measured."""

    cold: list[TimedRun] = field(default_factory=list)  # of long prompts
    restart: list[TimedRun] = field(default_factory=list)  # the same after a restart
    swap: list[TimedRun] = field(default_factory=list)  # after the model was unloaded and loaded again
    pressure: list[TimedRun] = field(default_factory=list)  # after other prompts took the memory
    kept_bytes: int = 0
    kept_tokens: int = 0
    num_compared: int = 0
    num_equal: int = 0

    def compare(self, expected: TimedRun, found: TimedRun) -> None:
        """Tokens and bits of logprobs."""
        self.num_compared += len(expected.answers)
        self.num_equal += sum(found.answers.get(key) == answer for key, answer in expected.answers.items())


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


def cache_figures(runs: CacheRuns, write: WriteCost, is_small: bool) -> list[Figure]:
    share = Target(SMALL_SHARE if is_small else LARGE_SHARE, at_least=False)
    cost, gaps = Target(WRITE_COST, at_least=False), Target(GAP_GROWTH, at_least=False)
    first = "time to the first token, of a cold prompt's:"
    return [
        Figure("restart_ttft_share", f"{first} after a restart", _ttft_share(runs, runs.restart), share),
        Figure("swap_ttft_share", f"{first} after a swap of models", _ttft_share(runs, runs.swap), share),
        Figure("pressure_ttft_share", f"{first} fallen out of memory", _ttft_share(runs, runs.pressure), share),
        Figure("write_overhead", "time that writing adds to 32 users", write.overhead, cost),
        Figure("write_cpu_overhead", "processor time that it adds", write.cpu_overhead, cost),
        Figure("write_cpu_share", "processor time of copying and writing, of all", write.cpu_share, cost),
        Figure("gap_growth", "what it adds to the 99th percentile of gaps", write.gap_growth, gaps),
        Figure("hit_equals_miss", "answers with the same bits", runs.num_equal / runs.num_compared, Target(1.0)),
        Figure("disk_bytes_per_token", "bytes on disk for a token", runs.kept_bytes / max(runs.kept_tokens, 1)),
    ]


def _ttft_share(runs: CacheRuns, found: Sequence[TimedRun]) -> float:
    """The median over prompts."""
    pairs = zip(found, runs.cold, strict=True)
    return statistics.median([warm.first_token_s / cold.first_token_s for warm, cold in pairs])
