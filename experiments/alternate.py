"""Speed of a model that fits into memory only once, beside llama.cpp on the same file: each loads it in turn.

python -m experiments.alternate FILE.gguf [ROUNDS]

Prints one line of JSON for each round, and at the end the medians. `surefoot bench model FILE --peers` is better where
both fit: it keeps our model in memory and takes shorter turns.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from surefoot.api import LLM
from surefoot.bench.model.run import OneUser
from surefoot.bench.peers.llama_tools import LlamaBench, build_for
from surefoot.machine.limits import usable_cores

PROMPT, CONTEXT, NEW = 512, 128, 32  # tokens: of the prompt that is timed, before the decoded ones, decoded
NUM_SAMPLES = 3  # of each kind after a warm-up; the best counts
KV_BYTES = 512 << 20


def measure(path: Path) -> dict[str, float]:
    start = time.perf_counter()
    llm = LLM(path, max_context=1024, max_running=2, kv_bytes=KV_BYTES, speculate="off")
    load_s, user = time.perf_counter() - start, OneUser(llm)
    user.decode(CONTEXT, 2)
    bandwidths = [llm.measure_bandwidth()]
    decodes: list[float] = []
    for _ in range(NUM_SAMPLES):
        decodes.append(user.decode(CONTEXT, NEW) / NEW)
        bandwidths.append(llm.measure_bandwidth())
    prefill_s = min(user.prefill(PROMPT) for _ in range(NUM_SAMPLES))
    of_bandwidth = llm.read_bytes(CONTEXT + NEW // 2) / min(decodes) / max(bandwidths)
    return {"load_s": load_s, "prefill_s": prefill_s, "decode_s": min(decodes), "of_bandwidth": of_bandwidth}


def run_round(path: Path, peer: LlamaBench) -> dict[str, float]:
    command = [sys.executable, "-m", "experiments.alternate", "--measure", str(path)]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    prefills, decodes = zip(*((peer.prefill(PROMPT), peer.decode(NEW)) for _ in range(NUM_SAMPLES)), strict=True)
    theirs: dict[str, Any] = {"llama_prefill_s": min(prefills), "llama_decode_s": min(decodes) / NEW}
    ratios = {f"{kind}_ratio": theirs[f"llama_{kind}_s"] / ours[f"{kind}_s"] for kind in ("prefill", "decode")}
    return {**ours, **theirs, **ratios}


def main(file: str, num_rounds: str = "3") -> None:
    peer = LlamaBench.install(Path(file), usable_cores(), build_for(None), lambda line: print(line, file=sys.stderr))
    rounds = []
    for _ in range(int(num_rounds)):
        rounds.append(run_round(Path(file), peer))
        print(json.dumps(rounds[-1]), flush=True)
    medians = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    print(json.dumps({"model": Path(file).stem, "medians": medians}))


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main(*sys.argv[1:])
