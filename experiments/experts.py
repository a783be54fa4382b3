"""Models with experts at published sizes, random weights: memory while loading, and speed for 1, 8 and 32 users.

python -m experiments.experts FOLDER [SHAPE[:LAYERS[:FORMAT]]...]

Writes each shape's GGUF file into the folder unless it is there (12 to 19 GB), measures it in a process of its own, and
prints one line of JSON for it. Delete the files yourself.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes.random_gguf import make_random_gguf, published_header
from surefoot.api import LLM, SamplingParams
from surefoot.models import feed_forward
from surefoot.models.feed_forward import Experts
from surefoot.models.linear import ExpertLinear
from surefoot.ops import group_by_expert

SHAPES = ("qwen3-30b-a3b", "gpt-oss-20b", "gemma-4-26b-a4b")  # if none is named
USERS = (1, 8, 32)
MIN_STEPS, MAX_STEPS, STEPS_S = 3, 32, 20.0
NUM_PROMPT = 4  # tokens
KV_BYTES = 512 << 20
CONTEXT = 2048
SAMPLE_S = 0.1


class PeakMemory:
    """The most memory that this process had, in parts, sampled while inside the block."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
                name, kilobytes = line.split()[:2]
                self.peaks[name[:-1]] = max(self.peaks.get(name[:-1], 0), int(kilobytes) << 10)


class ChosenExperts:
    """Counts the experts that steps choose, with operations run one by one instead of replayed."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.counts: list[int] = []

    def __enter__(self) -> "ChosenExperts":
        self._llm.runner.record = False
        feed_forward.group_by_expert = self._group  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        self._llm.runner.record = True
        feed_forward.group_by_expert = group_by_expert  # type: ignore[attr-defined]

    def _group(self, backend: Any, ids: Any, num_experts: int, out: Any) -> Any:
        self.counts.append(len(np.unique(ids)))
        return group_by_expert(backend, ids, num_experts, out)


def experts_of(part: Any) -> Iterator[Experts]:
    if isinstance(part, Experts):
        yield part
    elif isinstance(part, tuple):
        for member in part:
            yield from experts_of(member)
    elif is_dataclass(part):
        for field in fields(part):
            yield from experts_of(getattr(part, field.name))


def expert_bytes(linear: ExpertLinear) -> int:
    """Of one expert."""
    return sum(matrix.nbytes for matrix in linear.matrices)


@contextmanager
def decoding(llm: LLM, num_users: int) -> Iterator[None]:
    """Inside the block each step decodes one token for every user."""
    rng, params = np.random.default_rng(0), SamplingParams(temperature=0, max_tokens=CONTEXT // 2, ignore_eos=True)
    prompts = rng.integers(0, llm.config.vocab_size, (num_users, NUM_PROMPT)).tolist()
    lives = [llm.submit(prompt, params) for prompt in prompts]
    while not all(live.num_tokens for live in lives):
        llm.step()
    try:
        yield
    finally:
        for live in lives:
            llm.leave(live)
        llm.step()


def best_step(llm: LLM) -> tuple[float, float]:
    """Seconds of a step, and its CPU seconds: the best of several, within a bounded time."""
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    while len(seconds) < MIN_STEPS or (len(seconds) < MAX_STEPS and sum(seconds) < STEPS_S):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        llm.step()
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    return min(seconds), min(cpu_seconds)


def mean_chosen(llm: LLM) -> float:
    """Experts that a layer chooses in a step, on average."""
    with ChosenExperts(llm) as chosen:
        llm.step()
    return float(np.mean(chosen.counts))


def measure(path: Path) -> dict[str, Any]:
    with PeakMemory() as memory:
        begin, cpu_begin = time.perf_counter(), time.process_time()
        llm = LLM(path, max_context=CONTEXT, max_running=max(USERS), kv_bytes=KV_BYTES, speculate="off")
        load_s, load_cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    mixtures = list(experts_of(llm.model.layers))
    one = sum(expert_bytes(experts.gate_up) + expert_bytes(experts.down) for experts in mixtures)  # one in each layer
    others = llm.read_bytes(0) - one * mixtures[0].router.top_k
    result: dict[str, Any] = {
        "file_gb": path.stat().st_size / 1e9,
        "load_s": load_s,
        "load_cpu_s": load_cpu_s,
        "weights_gb": (others + one * mixtures[0].num_experts) / 1e9,
        "peak_gb": {name: memory.peaks[name] / 1e9 for name in ("Rss", "Pss", "Anonymous")},
        "variant": llm.backend.variant,
        "threads": llm.backend.threads,
        "users": {},
    }
    print(json.dumps(result), file=sys.stderr)
    for num_users in USERS:
        with decoding(llm, num_users):
            llm.step()
            (step_s, cpu_s), bandwidth, chosen = best_step(llm), llm.measure_bandwidth(), mean_chosen(llm)
        print(f"{path.stem}: {num_users} users, {1e3 * step_s:.0f} ms a step", file=sys.stderr)
        nbytes = others + one * chosen
        result["users"][num_users] = {
            "step_ms": 1e3 * step_s,
            "step_cpu_ms": 1e3 * cpu_s,
            "tokens_per_s": num_users / step_s,
            "experts_chosen": chosen,
            "read_gb": nbytes / 1e9,
            "bandwidth_gb_s": bandwidth / 1e9,
            "of_bandwidth": nbytes / step_s / bandwidth,
        }
    result["peak_gb"]["whole_run_rss"] = _high_water() / 1e9
    return result


def _high_water() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main(folder: str, *names: str) -> None:
    for name in names or SHAPES:
        shape_name, layers, fmt = f"{name}::".split(":")[:3]
        header = published_header(shape_name, int(layers) if layers else None, fmt)
        path = make_random_gguf(header, Path(folder), lambda line: print(f"\r{line}", end="", file=sys.stderr))
        subprocess.run([sys.executable, "-m", "experiments.experts", "--measure", str(path)], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps({"model": Path(sys.argv[2]).stem, **measure(Path(sys.argv[2]))}))
    else:
        main(*sys.argv[1:])
