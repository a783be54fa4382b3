"""A state instead of keys and values: memory and time of one more token, by the length before it. See states.md.

python docs/lessons/states.py [--quick] [--svg plot.svg]
"""

from collections.abc import Callable, Sequence

import numpy as np
from lesson import arguments, best_seconds, draw, show

from surefoot.ops import Backend, DeltaGates, DeltaRows, StateRows, bandwidth_buffer, best_read_bandwidth, delta_rule
from surefoot.ops.attention import Chunks, attention
from surefoot.ops.kv import empty_kv_cache, kv_write

HEADS, KV_HEADS, LANES, BLOCK = 32, 8, 128, 16  # of Qwen3 8B
KEY_HEADS = 16  # of Qwen3-Next's layers with states, which have 32 heads of 128 x 128
TOKEN_BYTES = KV_HEADS * (2 * LANES + LANES)  # keys in two limbs, values in one, without scales
STATE_BYTES = 4 * HEADS * LANES * LANES
LAYERS = 4  # side by side, so that none is in a cache that a model would not find it in


def attending(backend: Backend, length: int) -> Callable[[], None]:
    """One token attends to so many."""
    rng, blocks = np.random.default_rng(1), length // BLOCK
    keys, values = (rng.standard_normal((length, KV_HEADS, LANES), np.float32) for _ in range(2))
    caches = [empty_kv_cache(backend, blocks, BLOCK, KV_HEADS, LANES, LANES) for _ in range(LAYERS)]
    for cache in caches:
        kv_write(backend, cache, keys, values, np.arange(length, dtype=np.int64))
    q = rng.standard_normal((1, HEADS, LANES), np.float32)
    chunks = Chunks(np.array([0, 1]), np.array([length]), np.arange(blocks, dtype=np.int64)[None])

    def run() -> None:
        for cache in caches:
            attention(backend, q, cache, chunks, LANES**-0.5)

    return run


def remembering(backend: Backend) -> Callable[[], None]:
    """One token moves a state and reads it, however many came before."""
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((1, KEY_HEADS, LANES), np.float32) for _ in range(2))
    x = DeltaRows(q, k, rng.standard_normal((1, HEADS, LANES), np.float32))
    gates = DeltaGates(*(np.full((1, HEADS), value, np.float32) for value in (0.9, 0.5)))
    states = [rng.standard_normal((2, HEADS, LANES, LANES), np.float32) for _ in range(LAYERS)]
    y, turn = np.empty((1, HEADS, LANES), np.float32), [0, 1]

    def run() -> None:
        rows = StateRows(np.array([0, 1]), np.array(turn[:1]), np.array(turn[1:]))
        for state in states:
            delta_rule(backend, x, gates, state, rows, False, y=y)
        turn.reverse()

    return run


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words, model=False)
    lengths, rounds = ((64, 256), 1) if asked.quick else ((256, 1024, 4096, 16384, 65536), 10)
    backend = Backend(threads=asked.threads)
    bandwidth = best_read_bandwidth(backend, bandwidth_buffer(backend, 256 << 20), 2)
    state_s, rows = best_seconds(remembering(backend), rounds) / LAYERS, []
    for length in lengths:
        kept = length * TOKEN_BYTES
        seconds = best_seconds(attending(backend, length), rounds) / LAYERS
        rows.append((length, kept / 1e6, STATE_BYTES / 1e6, 1e3 * kept / bandwidth, 1e3 * seconds,
                     2e3 * STATE_BYTES / bandwidth, 1e3 * state_s))  # fmt: skip
    print(f"one layer, one token; memory is read at {bandwidth / 1e9:.1f} GB/s")
    show(("tokens before", "keys and values, MB", "state, MB", "attention, ms: predicted", "measured",
          "state, ms: predicted", "measured"), rows)  # fmt: skip
    lines = {name: [(row[0], row[place]) for row in rows] for name, place in (("attention", 4), ("state", 6))}
    draw(asked.svg, "One token in one layer", "tokens before", "ms", lines)


if __name__ == "__main__":
    main()
