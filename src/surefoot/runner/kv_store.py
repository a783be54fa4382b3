"""The KV bytes of every layer, and which blocks are free."""

from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.models import KvLayer, ModelConfig, SharedKv
from surefoot.ops import Arena, Backend, KvCache, KvForm, empty_kv_cache, kv_copy
from surefoot.ops.arrays import ALIGNMENT, I64
from surefoot.ops.kv import HUGE_PAGE


class KvStore:
    """Layers of one window share block ids: a block is that many tokens in each of them.

    A request holds a table per window. A window's table is a ring: since tokens behind the window are never read
    again, their blocks come round once more, and a request of any length takes `ring` blocks.
    """

    def __init__(
        self, backend: Backend, config: ModelConfig, num_tokens: int, max_requests: int, max_chunk: int,
        form: KvForm = KvForm.KEYS_TWO_LIMBS, block_size: int = 64, num_blocks: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        """num_blocks: by window, where somebody else hands the blocks out."""
        self.block_size = block_size
        # As many blocks as one request of num_tokens could use, or num_tokens in all.
        self.table_width = self.blocks_for(num_tokens)
        self._rings = {
            window: self.blocks_for(window - 1 + max_chunk) + 1 if window else self.table_width
            for window in config.windows
        }
        self.num_blocks = num_blocks or {
            window: min(ring, self.table_width) * max_requests if window else self.table_width + max_requests
            for window, ring in self._rings.items()
        }
        self._free = {window: list(range(count - 1, -1, -1)) for window, count in self.num_blocks.items()}
        self.caches = _make_caches(backend, config, self.num_blocks, form, block_size)
        self.windows = [config.kv(layer).window for layer in range(len(config.layers))]  # of the caches

    @property
    def total_bytes(self) -> int:
        return sum(cache.data.nbytes for cache in {id(cache): cache for cache in self.caches}.values())

    def read_bytes(self, num_tokens: int) -> int:
        """What a token reads that has so many before it."""
        return sum(
            min(num_tokens, window or num_tokens) * (cache.data[0].nbytes // cache.block_size)
            for window, cache in zip(self.windows, self.caches, strict=True)
        )

    def copy_block(self, backend: Backend, window: int, source: int, target: int) -> None:
        """In every layer of that window."""
        pairs = np.array([[source, target]])
        caches = {id(cache): cache for cache, one in zip(self.caches, self.windows, strict=True) if one == window}
        for cache in caches.values():
            kv_copy(backend, cache, pairs)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def reserve(self, num_tokens: int) -> dict[int, I64]:
        """Tables for a request of up to that many tokens, by window."""
        blocks = self.blocks_for(num_tokens)
        if blocks > self.table_width:
            raise ValueError(
                f"{num_tokens} tokens are more than the {self.table_width * self.block_size} there is room for"
            )
        needed = {window: min(ring, blocks) for window, ring in self._rings.items()}
        if any(len(self._free[window]) < count for window, count in needed.items()):
            raise MemoryError(f"no room for {num_tokens} more tokens: close other requests first")
        return {
            window: self._table([self._free[window].pop() for _ in range(count)]) for window, count in needed.items()
        }

    def _table(self, blocks: list[int]) -> I64:
        """The blocks in turn; a request never comes to the places behind its last token."""
        return np.resize(np.array(blocks, np.int64), self.table_width)

    def release(self, tables: Mapping[int, I64]) -> None:
        for window, table in tables.items():
            self._free[window].extend(sorted(set(table.tolist()), reverse=True))


def _make_caches(
    backend: Backend, config: ModelConfig, counts: Mapping[int, int], form: KvForm, block_size: int
) -> list[KvCache]:
    """One per layer; a layer that shares another's has that one's."""
    owned = [layer.kv for layer in config.layers if not isinstance(layer.kv, SharedKv)]
    sizes = [counts[kv.window] * _block_bytes(backend, kv, form, block_size) for kv in owned]
    gaps = _gaps(sizes)
    caches: list[KvCache] = []
    arena = Arena(sum(sizes) + sum(gaps) + ALIGNMENT * len(sizes))
    left = iter(gaps)
    for layer in config.layers:
        if isinstance(layer.kv, SharedKv):
            caches.append(caches[layer.kv.layer])
            continue
        kv, count = layer.kv, counts[layer.kv.window]
        arena.empty(next(left))
        caches.append(empty_kv_cache(backend, count, block_size, kv.heads, kv.key_dim, kv.value_dim, form, arena))
    return caches


def _gaps(sizes: Sequence[int]) -> list[int]:
    """Bytes to leave free before each layer, so that no two of them come to the end of a huge page together: to touch
    one for the first time takes a millisecond or more, and those of all layers would fall into one step."""
    places = {number * HUGE_PAGE // len(sizes) // ALIGNMENT * ALIGNMENT for number in range(len(sizes))}
    end, gaps = 0, list[int]()
    for nbytes in sizes:
        gap, place = min(((place - end) % HUGE_PAGE, place) for place in places)
        places.remove(place)
        gaps.append(gap)
        end += gap + -(-nbytes // ALIGNMENT) * ALIGNMENT
    return gaps


def _block_bytes(backend: Backend, kv: KvLayer, form: KvForm, block_size: int) -> int:
    return empty_kv_cache(backend, 1, block_size, kv.heads, kv.key_dim, kv.value_dim, form).data.nbytes


def slot_bytes(
    backend: Backend, config: ModelConfig, form: KvForm = KvForm.KEYS_TWO_LIMBS, block_size: int = 64
) -> dict[int, int]:
    """What a token takes in all layers of a window, by window."""
    sizes = dict.fromkeys(config.windows, 0)
    for layer in config.layers:
        if not isinstance(kv := layer.kv, SharedKv):
            sizes[kv.window] += -(-_block_bytes(backend, kv, form, block_size) // block_size)
    return sizes
