"""The KV bytes of every layer."""

from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.kv import blocks_for
from surefoot.models import KvLayer, ModelConfig, SharedKv
from surefoot.ops import Arena, Backend, KvCache, KvForm, empty_kv_cache, kv_copy
from surefoot.ops.arrays import ALIGNMENT
from surefoot.ops.kv import HUGE_PAGE


class KvStore:
    """Layers of one window share block ids: a block is `block_size` tokens in each of them."""

    def __init__(
        self, backend: Backend, config: ModelConfig, max_context: int, num_blocks: Mapping[int, int],
        form: KvForm = KvForm.KEYS_TWO_LIMBS, block_size: int = 64,
    ) -> None:  # fmt: skip
        """max_context: tokens of one request. num_blocks: by window."""
        self.block_size = block_size
        self.table_width = blocks_for(max_context, block_size)  # blocks in one request's table
        self.caches = _make_caches(backend, config, num_blocks, form, block_size)
        self.windows = [config.kv(layer).window for layer in range(len(config.layers))]  # of the caches

    @property
    def total_bytes(self) -> int:
        return sum(cache.data.nbytes for cache in {id(cache): cache for cache in self.caches}.values())

    def read_bytes(self, num_tokens: int) -> int:
        """What a token with that much context reads."""
        return sum(
            min(num_tokens, window or num_tokens) * (cache.data[0].nbytes // cache.block_size)
            for window, cache in zip(self.windows, self.caches, strict=True)
        )

    def copy_block(self, backend: Backend, window: int, source: int, target: int) -> None:
        """In every layer of that window."""
        pairs = np.array([[source, target]])
        layers = zip(self.caches, self.windows, strict=True)
        for cache in {id(cache): cache for cache, own_window in layers if own_window == window}.values():
            kv_copy(backend, cache, pairs)


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
