"""Speed and memory of a model that fits into memory once, beside llama.cpp with the same file: each in turn loads it.

python -m experiments.alternate FILE.gguf [ROUNDS [CACHE]]

CACHE is a folder for packed weights; the first round fills it. Prints figures as `docs/make/results.py record` takes
them. `surefoot bench model FILE --peers` is better where both fit: it keeps our model in memory and takes
shorter turns.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from experiments.experts import PeakMemory, best_step, decoding
from surefoot.api import LLM
from surefoot.api.opening import open_model
from surefoot.bench.model.run import OneUser
from surefoot.bench.peers.llama_tools import LlamaBench, build_for, install_tool
from surefoot.machine.limits import usable_cores
from surefoot.weights.memory import bytes_of_a_token

PROMPTS, CONTEXT, NEW = (512, 2048), 128, 32  # tokens: of prompts that are timed, before the decoded ones, decoded
USERS = (8, 32)
NUM_SAMPLES = 3  # of what is short, after a warm-up; the best counts
KV_BYTES = 512 << 20
CHUNK = 64 << 20  # bytes read at once
TARGETS: dict[str, dict[str, Any]] = {
    "of_bandwidth": {"bound": 0.8, "at_least": True},
    "decode_vs_llamacpp": {"bound": 1.3, "at_least": True},
    "prefill512_vs_llamacpp": {"bound": 1.5, "at_least": True},
    "prefill2048_vs_llamacpp": {"bound": 1.5, "at_least": True},
    "step8_vs_llamacpp": {"bound": 2, "at_least": True},
    "load_over_read": {"bound": 1.2, "at_least": False},
    "memory_over_planned": {"bound": 1, "at_least": False},  # the file, keys and values, and 1 GB
}


def measure(path: Path, cache: Path | None) -> dict[str, float]:
    read_s = _read(path)
    with PeakMemory() as memory:
        start = time.perf_counter()
        limits = {"max_context": 4096, "max_running": max(USERS), "kv_bytes": KV_BYTES}
        llm = LLM(path, **limits, speculate="off", packed_cache=cache)
        load_s = time.perf_counter() - start
        user = OneUser(llm)
        first_s = user.prefill(CONTEXT)
        user.decode(CONTEXT, 2)
        bandwidths = [llm.measure_bandwidth()]
        decodes: list[float] = []
        for _ in range(NUM_SAMPLES):
            decodes.append(user.decode(CONTEXT, NEW) / NEW)
            bandwidths.append(llm.measure_bandwidth())
        prompts = {f"prefill{n}_s": min(user.prefill(n) for _ in range(1 + (n == PROMPTS[0]))) for n in PROMPTS}
        steps = {f"step{n}_s": _step(llm, n) for n in USERS}
    moe = llm.config.moe
    file_bytes = bytes_of_a_token(open_model(path).checkpoint.tensors, moe.router.top_k if moe else 0)
    fastest = max(bandwidths) * min(decodes)  # bytes
    planned_gb = (path.stat().st_size + KV_BYTES) / 1e9 + 1
    return {
        "load_s": load_s, "load_over_read": load_s / read_s, "first_token_s": first_s, **prompts,
        "decode_s": min(decodes), **steps, "bandwidth_gb_s": max(bandwidths) / 1e9,
        "of_bandwidth": llm.read_bytes(CONTEXT + NEW // 2) / fastest, "of_file_limit": (file_bytes or 0) / fastest,
        "peak_gb": memory.peaks["Anonymous"] / 1e9, "memory_over_planned": memory.peaks["Anonymous"] / 1e9 / planned_gb,
    }  # fmt: skip


def _read(path: Path) -> float:
    """Seconds to read the file once from the disk: what lies in the page cache is dropped before and after."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        while file.read(CHUNK):
            pass
        seconds = time.perf_counter() - start
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return seconds


def _step(llm: LLM, num_users: int) -> float:
    with decoding(llm, num_users):
        llm.step()
        return best_step(llm)[0]


def run_round(path: Path, peer: LlamaBench, cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "experiments.alternate", "--measure", str(path), cache]
    ours = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    theirs = {f"prefill{n}_s": peer.prefill(n) for n in PROMPTS}
    theirs["decode_s"] = min(peer.decode(NEW) for _ in range(NUM_SAMPLES)) / NEW
    theirs |= {f"step{n}_s": _batched(peer, n) for n in USERS}
    ratios = {f"{name[:-2]}_vs_llamacpp": seconds / ours[name] for name, seconds in theirs.items()}
    return {**ours, **{f"llamacpp_{name}": seconds for name, seconds in theirs.items()}, **ratios}


def _batched(peer: LlamaBench, num_users: int) -> float:
    """llama.cpp's seconds for a step that decodes for so many users, each after a few tokens of its own."""
    program = install_tool("llama-batched-bench", lambda line: print(line, file=sys.stderr), peer.build)
    options = {"-m": peer.model, "-t": peer.threads, "-c": 4096, "-npp": 4, "-ntg": 8, "-npl": num_users}
    words = [str(word) for option in options.items() for word in option]
    done = subprocess.run([program, *words, "--output-format", "jsonl"], check=True, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(line)
    return float(found["t_tg"]) / 8


def main(file: str, num_rounds: str = "3", cache: str = "") -> None:
    peer = LlamaBench.install(Path(file), usable_cores(), build_for(None), lambda line: print(line, file=sys.stderr))
    rounds: list[dict[str, float]] = []
    for _ in range(int(num_rounds)):
        rounds.append(run_round(Path(file), peer, cache))
        print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
    samples = {name: [found[name] for found in rounds] for name in rounds[0]}
    figures = {name: statistics.median(values) for name, values in samples.items()}
    run = {"model": Path(file).stem, "figures": figures, "samples": samples, "targets": TARGETS, "machine": {}}
    print(json.dumps(run))


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(measure(Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3] else None)))
    else:
        main(*sys.argv[1:])
