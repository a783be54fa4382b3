"""Attention in tiles: memory and time of a prompt, with and without the matrix of all scores. See tiles.md.

python docs/lessons/tiles.py [--quick] [--svg plot.svg]
"""

import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from lesson import arguments, best_seconds, draw, show
from numpy.typing import NDArray

from surefoot.ops import Backend
from surefoot.ops.attention import Chunks, attention
from surefoot.ops.kv import empty_kv_cache, kv_write

LANES, BLOCK, TILE = 64, 16, 256
Floats = NDArray[np.float32]


def whole(q: Floats, k: Floats, v: Floats) -> Floats:
    """All scores at once: a matrix of as many rows and columns as there are tokens."""
    scores = q @ k.T
    hide_later(scores)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    return (scores @ v) / scores.sum(axis=1, keepdims=True)


def hide_later(scores: Floats) -> None:
    """From each token those after it."""
    for row in range(len(scores)):
        scores[row, row + 1 :] = -np.inf


def tiled(q: Floats, k: Floats, v: Floats) -> Floats:
    """The same sums, a tile of keys after the other. What was summed before is scaled when a larger score comes."""
    out = np.empty_like(q)
    for first in range(0, len(q), TILE):
        rows = q[first : first + TILE]
        most, total = np.full((len(rows), 1), -np.inf, np.float32), np.zeros((len(rows), 1), np.float32)
        sums = np.zeros_like(rows)
        for start in range(0, first + len(rows), TILE):
            scores = rows @ k[start : start + TILE].T
            if start == first:
                hide_later(scores)
            larger = np.maximum(most, scores.max(axis=1, keepdims=True))
            scores, scale, most = np.exp(scores - larger), np.exp(most - larger), larger
            total = total * scale + scores.sum(axis=1, keepdims=True)
            sums = sums * scale + scores @ v[start : start + TILE]
        out[first : first + len(rows)] = sums / total
    return out


def kernel(backend: Backend, q: Floats, k: Floats, v: Floats) -> Callable[[], Floats]:
    """surefoot's own, over keys and values in blocks, for the same head."""
    num_tokens = len(q)
    cache = empty_kv_cache(backend, num_tokens // BLOCK, BLOCK, 1, LANES, LANES)
    kv_write(backend, cache, k[:, None], v[:, None], np.arange(num_tokens, dtype=np.int64))
    table = np.arange(num_tokens // BLOCK, dtype=np.int64)[None]
    chunks = Chunks(np.array([0, num_tokens]), np.array([num_tokens]), table)
    return lambda: attention(backend, q[:, None], cache, chunks, 1.0)[:, 0]


def peak_bytes(run: Callable[[], object]) -> int:
    """Memory that a run takes beside what is there before."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def compare(backend: Backend, count: int) -> tuple[float, ...]:
    """Tokens; megabytes of all scores, predicted and measured, and of tiles; seconds of the three ways."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((count, LANES), np.float32) for _ in range(3))
    q /= LANES**0.5
    runs = (partial(whole, q, k, v), partial(tiled, q, k, v), kernel(backend, q, k, v))
    answers = [run() for run in runs]
    assert all(np.abs(answer - answers[0]).max() < 0.03 for answer in answers), "values are kept in 8 bits"
    seconds = [best_seconds(run, 1 if count > 4096 else 3) for run in runs]
    return count, 4 * count**2 / 1e6, *(peak_bytes(run) / 1e6 for run in runs[:2]), *seconds


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words, model=False)
    lengths = (256, 512) if asked.quick else (1024, 2048, 4096, 8192, 16384)
    backend = Backend(threads=asked.threads)
    rows = [compare(backend, count) for count in lengths]
    show(("tokens", "all scores, MB: predicted", "measured", "in tiles, MB", "all scores, s: measured", "in tiles, s",
          "surefoot, s"), rows)  # fmt: skip
    labels = ("all scores", "in tiles", "surefoot")
    draw(asked.svg, "Attention of one head over a prompt", "tokens", "seconds",
         {label: [(row[0], row[4 + place]) for row in rows] for place, label in enumerate(labels)})  # fmt: skip


if __name__ == "__main__":
    main()
