"""Attention that keeps fewer keys and values: MHA, GQA, MQA, MLA, a window. See kv-shrinking.md.

python docs/lessons/kv_shrinking.py [--quick] [--svg plot.svg]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from lesson import arguments, best_seconds, draw, show

from surefoot.formats import W8_GROUPED
from surefoot.ops import Backend
from surefoot.ops.attention import Chunks, attention
from surefoot.ops.kv import empty_kv_cache, kv_write
from surefoot.speed.measure_rates import AttentionShape, LinearShape, measure_rates
from surefoot.speed.step_time import ChunkLoad, PredictedSteps
from surefoot.speed.traffic import AttentionUse, ModelWork

HEADS, LANES, BLOCK = 32, 64, 16  # of Llama 3.2 1B
LAYERS = 16


@dataclass(frozen=True)
class Kind:
    """How a layer keeps its past."""

    name: str
    kv_heads: int
    key_dim: int = LANES
    value_dim: int = LANES
    window: int = 0

    @property
    def token_bytes(self) -> int:
        """Keys in two limbs and values in one, without scales."""
        return self.kv_heads * (2 * self.key_dim + self.value_dim)


KINDS = (Kind("MHA", 32), Kind("GQA, 8 heads", 8), Kind("MQA", 1), Kind("MLA, rank 512", 1, 576, 512),
         Kind("GQA, window of 512", 8, window=512))  # fmt: skip


def measure_s(backend: Backend, kind: Kind, context: int, rounds: int) -> float:
    """Attention of one new token in all layers, whose caches lie side by side."""
    rng, blocks = np.random.default_rng(1), context // BLOCK
    caches = [empty_kv_cache(backend, blocks, BLOCK, kind.kv_heads, kind.key_dim, kind.value_dim)
              for _ in range(LAYERS)]  # fmt: skip
    keys, values = (rng.standard_normal((context, kind.kv_heads, lanes), np.float32)
                    for lanes in (kind.key_dim, kind.value_dim))  # fmt: skip
    for cache in caches:
        kv_write(backend, cache, keys, values, np.arange(context, dtype=np.int64))
    q = rng.standard_normal((1, HEADS, kind.key_dim), np.float32)
    chunks = Chunks(np.array([0, 1]), np.array([context]), np.arange(blocks, dtype=np.int64)[None])

    def run() -> None:
        for cache in caches:
            attention(backend, q, cache, chunks, kind.key_dim**-0.5, window=kind.window)

    return best_seconds(run, rounds)


def predict_s(backend: Backend, kind: Kind, context: int, seconds: float) -> float:
    """By the cost model, over kernels measured for these heads."""
    heads = AttentionShape(HEADS, kind.kv_heads, kind.key_dim, kind.value_dim)
    rates = measure_rates(backend, [LinearShape(W8_GROUPED, 2, 64, 256)], heads, seconds)
    use = AttentionUse(kind.window, LAYERS * HEADS * (kind.key_dim + kind.value_dim), LAYERS * kind.token_bytes)
    return PredictedSteps(ModelWork((), (), (use,), 0, 0), rates).parts([ChunkLoad(1, context - 1)], 0).attention


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words, model=False)
    context = 256 if asked.quick else 4096
    backend, rows = Backend(threads=asked.threads), []
    for kind in KINDS[:2] if asked.quick else KINDS:
        kept = LAYERS * kind.token_bytes * min(context, kind.window or context)
        predicted = predict_s(backend, kind, context, 0.1 if asked.quick else 3.0)
        measured = measure_s(backend, kind, context, 1 if asked.quick else 20)
        rows.append((kind.name, LAYERS * kind.token_bytes, kept / 1e6, 1000 * predicted, 1000 * measured))
    print(f"one token after {context} others, {LAYERS} layers of {HEADS} heads of queries")
    show(("kind", "bytes a token", "MB kept", "predicted ms", "measured ms"), rows)
    lines = {"predicted": [(row[2], row[3]) for row in sorted(rows, key=lambda row: row[2])],
             "measured": [(row[2], row[4]) for row in sorted(rows, key=lambda row: row[2])]}  # fmt: skip
    draw(asked.svg, "Attention of one token", "MB of keys and values", "ms", lines)


if __name__ == "__main__":
    main()
