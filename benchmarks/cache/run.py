"""Runs `python -m benchmarks cache`: time to the first token after a restart, and what writing costs many users."""

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.cache.figures import CacheRuns, Predictions, cache_figures
from benchmarks.cache.rates import ByteRates, drop_from_memory, measure_rates
from benchmarks.cache.sessions import TimedRun, alike_prompts, cached, capacity_for_one, plain_engine, run_tasks
from benchmarks.cache.write_cost import WriteCost, measure_write_cost
from surefoot.api import LLM
from surefoot.bench.harness.engine_load import EngineLoad, EngineSpeed
from surefoot.bench.harness.loaded_model import load_model
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.workloads import Task, ids

MIB = 1 << 20
LONG_PROMPT, LEAST_PROMPT = 8000, 256
NUM_NEW = 4  # tokens of a long prompt's answer
NUM_USERS = 32
PROMPT_SHARE = 0.4  # of the time, for long prompts
BUSY_SHARE = 0.4  # for many users with writing and without


@dataclass(frozen=True)
class CacheSettings:
    """How much is measured. The long prompts are as long as fits into the time."""

    seconds: float = 600  # without loading
    num_prompts: int = 2  # long ones that are asked again; at least two, which drive each other out of a small memory
    num_alike: int = 48  # prompts whose answers are compared
    kv_bytes: int = 800 * MIB  # of the KV cache
    folder: Path | None = None  # in which the cache is made; None: the system's for temporary files


QUICK = CacheSettings(seconds=40, num_alike=12)


def run_cache(model: str, settings: CacheSettings, variant: str | None, threads: int | None, say: Say) -> BenchResults:
    def open_model() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=LONG_PROMPT + 64, max_running=NUM_USERS,
            kv_bytes=settings.kv_bytes, speculate="off",
        )  # fmt: skip

    loaded = load_model(model, open_model, say)
    is_small = loaded.llm.config.width < 1024
    with tempfile.TemporaryDirectory(prefix="surefoot-cache-", dir=settings.folder) as folder:
        bench = CacheBench(loaded.llm, settings, Path(folder), say)
        runs = bench.run()
        described, machine = loaded.described | bench.facts(runs), loaded.run.facts(loaded.llm.backend)
        del loaded
        described["swap_load_seconds"] = bench.swap(runs, open_model)
        described["predictions"] = asdict(bench.predictions(runs))
    return BenchResults({}, cache_figures(runs, bench.write, is_small), described, {}, {}, machine)


@dataclass
class CacheBench:
    """The parts of a run, over one loaded model."""

    llm: LLM
    settings: CacheSettings
    folder: Path
    say: Say
    num_prompt: int = field(init=False)
    write: WriteCost = field(init=False)
    rates: ByteRates = field(init=False)
    speed: EngineSpeed = field(init=False)

    def run(self) -> CacheRuns:
        self.say("finding how much fits into the time")
        self.rates = measure_rates(self.llm.runner.kv, self.folder)
        self.speed = EngineLoad(self.llm).speed()
        self._fit()
        runs = CacheRuns()
        self._ask_cold(runs)
        self.say("asking again after a restart")
        self._ask_again(runs, runs.restart)
        self.say(f"{NUM_USERS} users, with writing and without")
        self.write = self._measure_writing()
        self.say("comparing answers")
        self._compare(runs)
        return runs

    def _fit(self) -> None:
        seconds, speed = self.settings.seconds, self.speed
        affordable = int(PROMPT_SHARE * seconds / self.settings.num_prompts / speed.token_s)
        self.num_prompt = max(min(LEAST_PROMPT, self.llm.max_context - 64), min(affordable, self.llm.max_context - 64))

    @property
    def _kept(self) -> Path:
        """The folder with the long prompts."""
        return self.folder / "prompts"

    def _prompts(self) -> list[Task]:
        rngs = (random.Random(f"prompt {number}") for number in range(self.settings.num_prompts))
        return [Task(ids(rng, self.num_prompt, self.llm.config.vocab_size), NUM_NEW) for rng in rngs]

    def _ask_cold(self, runs: CacheRuns) -> None:
        """Long prompts are computed and kept; then each is asked again when another has taken its memory."""
        capacity = capacity_for_one(self.llm.capacity, self.num_prompt, NUM_NEW)
        with cached(self.llm, self._kept, capacity) as session:
            for task in self._prompts():
                self.say(f"a prompt of {self.num_prompt} tokens")
                runs.cold.append(run_tasks(session.engine, [task]))
            session.finish_writing()
            runs.kept_bytes = session.tier.store.counters.written_bytes
            num_computed = self.num_prompt + NUM_NEW - 1
            runs.kept_tokens = len(runs.cold) * (num_computed - num_computed % self._block_size)
            self.say("asking again under memory pressure")
            for task, cold in zip(self._prompts(), runs.cold, strict=True):
                drop_from_memory(self._kept)
                runs.pressure.append(run_tasks(session.engine, [task]))
                runs.compare(cold, runs.pressure[-1])

    def _ask_again(self, runs: CacheRuns, found: list[TimedRun]) -> None:
        """The long prompts, of engines that know the disk alone."""
        for task, cold in zip(self._prompts(), runs.cold, strict=True):
            with cached(self.llm, self._kept) as session:
                found.append(run_tasks(session.engine, [task]))
            runs.compare(cold, found[-1])

    def swap(self, runs: CacheRuns, open_model: Callable[[], LLM]) -> float:
        """Unload the model, load it again and ask the long prompts. Returns the seconds of loading."""
        self.say("swapping models")
        self.llm.close()
        del self.llm
        gc.unfreeze()
        gc.collect()
        start = time.perf_counter()
        self.llm = open_model()
        load_s = time.perf_counter() - start
        self._ask_again(runs, runs.swap)
        return load_s

    def _measure_writing(self) -> WriteCost:
        with cached(self.llm, self.folder / "busy") as session:
            return measure_write_cost(session, self.llm, NUM_USERS, BUSY_SHARE * self.settings.seconds)

    def _compare(self, runs: CacheRuns) -> None:
        """Prompts that begin alike: computed, kept, and found."""
        longest = min(200, self.llm.max_context // 2)
        tasks = alike_prompts(self.settings.num_alike, self.llm.config.vocab_size, longest, 5)
        expected = run_tasks(plain_engine(self.llm), tasks)
        for _ in range(2):
            with cached(self.llm, self.folder / "alike") as session:
                runs.compare(expected, run_tasks(session.engine, tasks))

    def facts(self, runs: CacheRuns) -> dict[str, object]:
        return {
            "prompt_tokens": self.num_prompt, "rates": asdict(self.rates),
            "num_windows": 2 * len(self.write.plain.seconds),
            "gap_p99_s": {"writing": self.write.writing.gap_p99, "plain": self.write.plain.gap_p99},
            "cold_s": [run.first_token_s for run in runs.cold],
        }  # fmt: skip

    def predictions(self, runs: CacheRuns) -> Predictions:
        token_bytes = self.llm.runner.kv.block_bytes / self._block_size
        rest = 1 + (self.num_prompt - 1) % self._block_size  # tokens that are always computed
        up_s = self.num_prompt * token_bytes * self.rates.up_s + rest * self.speed.token_s
        share = up_s / statistics.median([run.first_token_s for run in runs.cold])
        down_s = self.write.num_tokens * token_bytes * self.rates.down_s
        plain_s, cpu_s = 2 * sum(self.write.plain.seconds), 2 * sum(self.write.plain.cpu_seconds)
        return Predictions(
            restart_ttft_share=share,
            swap_ttft_share=share,
            pressure_ttft_share=share,
            write_overhead=down_s / plain_s,
            write_cpu_overhead=down_s / cpu_s,
            write_cpu_share=down_s / (cpu_s + down_s),
            gap_growth=2 * down_s / plain_s,
            hit_equals_miss=1.0,
            disk_bytes_per_token=token_bytes,
        )

    @property
    def _block_size(self) -> int:
        return self.llm.capacity.layout.block_size
