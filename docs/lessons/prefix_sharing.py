"""Prefix sharing: the time to the first token by the part of the prompt that is cached. See prefix-sharing.md.

python docs/lessons/prefix_sharing.py MODEL [--quick] [--svg plot.svg]
"""

import random
import time
from collections.abc import Sequence

from lesson import arguments, draw, predicted_steps, show

from surefoot import LLM, SamplingParams
from surefoot.bench.harness.workloads import ids
from surefoot.plan.planning import MAX_CHUNK

ONE = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)


def first_token_s(llm: LLM, shared: Sequence[int], rest: Sequence[int]) -> tuple[float, int]:
    """Seconds of the first token, and how many prompt tokens were cached."""
    start = time.perf_counter()
    (output,) = llm.generate([*shared, *rest], ONE)
    return time.perf_counter() - start, output.usage.num_cached


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words)
    length = 64 if asked.quick else 768
    times = predicted_steps(asked.model, asked.threads, asked.quick)
    llm = LLM(asked.model, max_context=2 * length, max_running=2, speculate="off", threads=asked.threads)
    rng, rows = random.Random(1), []
    for share in (0.0, 0.25, 0.5, 0.75, 0.94):
        shared = ids(rng, int(share * length) // 16 * 16, llm.config.vocab_size)
        if shared:
            llm.generate([*shared, 3], ONE)  # the first user computes it
        seconds, cached = min(
            first_token_s(llm, shared, ids(rng, length - len(shared), llm.config.vocab_size)) for _ in range(3)
        )
        whole, before = (times.prefill_seconds(n, MAX_CHUNK) if n else 0.0 for n in (length, cached))
        rows.append((f"{share:.0%}", cached, 1000 * (whole - before), 1000 * seconds))
    print(f"prompts of {length} tokens")
    show(("shared", "cached tokens", "predicted ms", "measured ms"), rows)
    lines = {"predicted": [(row[1], row[2]) for row in rows], "measured": [(row[1], row[3]) for row in rows]}
    draw(asked.svg, "Time to first token", "cached tokens", "ms", lines)


if __name__ == "__main__":
    main()
