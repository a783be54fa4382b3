"""Static against continuous batching: what waiting for the longest answer costs. See static-batching.md.

python docs/lessons/static_batching.py MODEL [--quick] [--svg plot.svg]
"""

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from lesson import arguments, draw, predicted_steps, show

from surefoot import LLM
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.bench.harness.workloads import Task, ids, scaled
from surefoot.speed.step_time import PredictedSteps

CONTEXT = 64
Item = TypeVar("Item")


def queued(count: int, vocab: int, seed: int, scale: float) -> list[Task]:
    """Short prompts, and answers of 10 to 400 tokens: as many of 10 to 20 as of 200 to 400. Lengths are always the
    same."""
    rng, draw = random.Random(seed), random.Random(778)
    lengths = [round(math.exp(draw.uniform(math.log(10), math.log(400)))) for _ in range(count)]
    return [Task(ids(rng, scaled(16, scale), vocab), scaled(new, scale)) for new in lengths]


def measured_static_s(load: EngineLoad, tasks: Sequence[Task], slots: int) -> float:
    """Each group is computed as if all of its answers were as long as the longest."""
    seconds = 0.0
    for group in groups(tasks, slots):
        longest = max(task.num_new for task in group)
        seconds += load.run([replace(task, num_new=longest) for task in group])
    return seconds


def groups(items: Sequence[Item], slots: int) -> list[Sequence[Item]]:
    return [items[start : start + slots] for start in range(0, len(items), slots)]


def static_s(times: PredictedSteps, lengths: Sequence[int], slots: int) -> float:
    """Every slot is computed until the longest answer of its group ends."""
    return sum(max(group) * times.decode_seconds(slots, CONTEXT) for group in groups(lengths, slots))


def continuous_s(times: PredictedSteps, lengths: Sequence[int], slots: int) -> float:
    """An answer that ends gives its slot to the next one; at the end, slots stay empty."""
    ends: list[int] = []
    for length in lengths:
        heapq.heappush(ends, length + (heapq.heappop(ends) if len(ends) == slots else 0))
    steps, seconds, before = sorted(ends), 0.0, 0
    for number, end in enumerate(steps):
        seconds += (end - before) * times.decode_seconds(len(steps) - number, CONTEXT)
        before = end
    return seconds


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words)
    slots, scale = (2, 0.05) if asked.quick else (8, 0.5)
    counts = (4,) if asked.quick else (8, 16, 32, 64)
    times = predicted_steps(asked.model, asked.threads, asked.quick)
    load = EngineLoad(LLM(asked.model, max_context=512, max_running=slots, speculate="off", threads=asked.threads))
    rows = []
    for count in counts:
        tasks = queued(count, load.vocab, load.seed(), scale)
        lengths = [task.num_new for task in tasks]
        predicted = static_s(times, lengths, slots) / continuous_s(times, lengths, slots)
        load.run(tasks[:slots])
        static, continuous = measured_static_s(load, tasks, slots), load.run(tasks, slots)
        rows.append((count, sum(lengths), static, continuous, predicted, static / continuous))
    show(("answers", "tokens", "static, s", "continuous, s", "predicted gain", "measured gain"), rows)
    lines = {"predicted": [(row[0], row[4]) for row in rows], "measured": [(row[0], row[5]) for row in rows]}
    draw(asked.svg, "How many times as fast as static batching", "answers in the queue", "times", lines)


if __name__ == "__main__":
    main()
