"""Arithmetic intensity: why a step of eight answers takes little longer than a step of one. See batching.md.

python docs/lessons/batching.py MODEL [--quick] [--svg plot.svg]
"""

from collections.abc import Sequence

from lesson import arguments, draw, predicted_steps, show

from surefoot import LLM
from surefoot.bench.harness.engine_load import EngineLoad
from surefoot.speed.step_time import ChunkLoad

CONTEXT = 24  # tokens of an answer in the middle of what is measured
STEPS = 8


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words)
    batches = (1, 2, 4) if asked.quick else (1, 2, 4, 8, 16, 32)
    times = predicted_steps(asked.model, asked.threads, asked.quick)
    load = EngineLoad(LLM(asked.model, max_context=512, max_running=max(batches), speculate="off",
                          threads=asked.threads))  # fmt: skip
    rows, weights = [], sum(use.read_bytes for use in (*times.work.matrices, *times.work.head))
    products = sum(use.products for use in (*times.work.matrices, *times.work.head))
    for batch in batches:
        step = times.parts([ChunkLoad(1, CONTEXT)] * batch, batch)
        measured = min(load.decode_steps(batch, STEPS) / STEPS for _ in range(2 if asked.quick else 6))
        rows.append((batch, 2 * batch * products / weights, step.bound, batch / step.total, batch / measured,
                     1000 * measured))  # fmt: skip
    show(
        ("answers at once", "operations a byte", "bound", "predicted tokens/s", "measured tokens/s", "ms a step"), rows
    )
    lines = {"predicted": [(row[0], row[3]) for row in rows], "measured": [(row[0], row[4]) for row in rows]}
    draw(asked.svg, "Tokens per second of all answers together", "answers at once", "tokens/s", lines)


if __name__ == "__main__":
    main()
