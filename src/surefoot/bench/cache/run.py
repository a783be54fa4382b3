"""Runs `surefoot bench cache`: time to the first token after a restart, and what writing costs many users."""

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from surefoot.api import LLM
from surefoot.bench.cache.figures import CacheRuns, Predictions, cache_figures
from surefoot.bench.cache.rates import ByteRates, drop_from_memory, measure_rates
from surefoot.bench.cache.sessions import TimedRun, alike_prompts, cached, capacity_for_one, plain_engine, run_tasks
from surefoot.bench.harness.engine_load import EngineLoad, EngineSpeed
from surefoot.bench.harness.loaded_model import load_model
from surefoot.bench.harness.model_results import ModelResults
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.workloads import Task, ids, mixed

MIB = 1 << 20
LONG_PROMPT, LEAST_PROMPT = 8000, 256
NUM_NEW = 4  # tokens of a long prompt's answer
NUM_USERS = 32
PROMPT_SHARE = 0.4  # of the time, for long prompts
BUSY_SHARE = 0.4  # for many users with writing and without


@dataclass(frozen=True)
class CacheSettings:
    """How much is measured. Lengths of requests are scaled so that the rounds fit into the time."""

    seconds: float = 600  # without loading
    num_prompts: int = 2  # long ones that are asked again; at least two, which drive each other out of a small memory
    rounds: int = 4  # of many users, with writing and without
    num_alike: int = 48  # prompts whose answers are compared
    kv_bytes: int = 800 * MIB  # of the KV cache
    folder: Path | None = None  # in which the cache is made; None: the system's for temporary files


QUICK = CacheSettings(seconds=40, rounds=2, num_alike=12)


def run_cache(model: str, settings: CacheSettings, variant: str | None, threads: int | None, say: Say) -> ModelResults:
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
        described, machine = loaded.described | bench.facts(runs), loaded.run_facts()
        del loaded
        described["swap_load_seconds"] = bench.swap(runs, open_model)
        described["predictions"] = asdict(bench.predictions(runs))
    return ModelResults({}, cache_figures(runs, is_small), described, {}, {}, machine)


@dataclass
class CacheBench:
    """The parts of a run, over one loaded model."""

    llm: LLM
    settings: CacheSettings
    folder: Path
    say: Say
    num_prompt: int = field(init=False)
    scale: float = field(init=False)  # of the many users' requests
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
        for number in range(self.settings.rounds):
            self.say(f"{NUM_USERS} users, round {number + 1} of {self.settings.rounds}")
            self._busy(runs, number)
        self.say("comparing answers")
        self._compare(runs)
        return runs

    def _fit(self) -> None:
        seconds, speed = self.settings.seconds, self.speed
        affordable = int(PROMPT_SHARE * seconds / self.settings.num_prompts / speed.token_s)
        self.num_prompt = max(min(LEAST_PROMPT, self.llm.max_context - 64), min(affordable, self.llm.max_context - 64))
        whole_s = 6200 * speed.token_s + 260 * speed.step_s
        self.scale = min(1.0, max(1 / 16, BUSY_SHARE * seconds / (2 * self.settings.rounds) / whole_s))

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

    def _busy(self, runs: CacheRuns, number: int) -> None:
        """The same lengths with writing and without, in turns; other tokens, so that nothing is found."""
        for kind in ("plain", "writing") if number % 2 else ("writing", "plain"):
            tasks = mixed(NUM_USERS, self.llm.config.vocab_size, 1000 + 2 * number + (kind == "plain"), self.scale)
            if kind == "plain":
                runs.plain.append(run_tasks(plain_engine(self.llm), tasks))
            else:
                self._run_writing(runs, tasks)
        runs.busy_tokens = sum(len(task.prompt) + task.num_new for task in tasks)

    def _run_writing(self, runs: CacheRuns, tasks: Sequence[Task]) -> None:
        """What is written after the last answer counts as processor time, not as time."""
        with cached(self.llm, self.folder / "busy") as session:
            before = time.process_time()
            run = run_tasks(session.engine, tasks)
            session.finish_writing()
            runs.writing.append(replace(run, cpu_seconds=time.process_time() - before))
            runs.write_cpu_s += session.tier.write_cpu_s

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
            "prompt_tokens": self.num_prompt, "scale": self.scale, "rates": asdict(self.rates),
            "busy": runs.busy_facts(), "cold_s": [run.first_token_s for run in runs.cold],
        }  # fmt: skip

    def predictions(self, runs: CacheRuns) -> Predictions:
        token_bytes = self.llm.runner.kv.block_bytes / self._block_size
        rest = 1 + (self.num_prompt - 1) % self._block_size  # tokens that are always computed
        up_s = self.num_prompt * token_bytes * self.rates.up_s + rest * self.speed.token_s
        share = up_s / statistics.median([run.first_token_s for run in runs.cold])
        down_s = runs.busy_tokens * token_bytes * self.rates.down_s
        cpu_s = statistics.median([run.cpu_seconds for run in runs.plain])
        return Predictions(
            restart_ttft_share=share,
            swap_ttft_share=share,
            pressure_ttft_share=share,
            write_overhead=down_s / statistics.median([run.seconds for run in runs.plain]),
            write_cpu_overhead=down_s / cpu_s,
            write_cpu_share=down_s / (cpu_s + down_s),
            gap_growth=token_bytes * self.rates.down_s / self.speed.token_s,
            hit_equals_miss=1.0,
            disk_bytes_per_token=token_bytes,
        )

    @property
    def _block_size(self) -> int:
        return self.llm.capacity.layout.block_size
