"""The bytes that every layer keeps of requests: keys and values, or states."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.kv import blocks_for
from surefoot.models import KvLayer, LayerMemory, ModelConfig, SharedKv
from surefoot.ops import Arena, Backend, KvCache, KvForm, empty_kv_cache, huge_empty, kv_copy
from surefoot.ops.arrays import ALIGNMENT, F32
from surefoot.ops.kv import HUGE_PAGE


class KvStore:
    """Layers of one window share block ids: a block is `block_size` tokens in each of them. Layers with states share
    slot ids."""

    def __init__(
        self, backend: Backend, config: ModelConfig, max_context: int, num_blocks: Mapping[int, int],
        form: KvForm = KvForm.KEYS_TWO_LIMBS, block_size: int = 64, num_slots: int = 0,
    ) -> None:  # fmt: skip
        """max_context: tokens of one request. num_blocks: by window. num_slots: of states."""
        self.block_size = block_size
        self.table_width = blocks_for(max_context, block_size)  # blocks in one request's table
        self.caches = _make_caches(backend, config, num_blocks, form, block_size)  # by layer
        self.windows = {layer: config.kv(layer).window for layer in self.caches}
        self.memory = LayerMemory(self.caches, _make_states(config, num_slots))

    @property
    def total_bytes(self) -> int:
        """Of keys, values and states."""
        states = sum(array.nbytes for arrays in self.memory.states.values() for array in arrays)
        return states + sum(
            cache.data.nbytes for cache in {id(cache): cache for cache in self.caches.values()}.values()
        )

    def read_bytes(self, num_tokens: int) -> int:
        """What a token with that much context reads."""
        return sum(
            min(num_tokens, self.windows[layer] or num_tokens) * (cache.data[0].nbytes // cache.block_size)
            for layer, cache in self.caches.items()
        )

    def copy_block(self, backend: Backend, window: int, source: int, target: int) -> None:
        """In every layer of that window."""
        pairs = np.array([[source, target]])
        caches = [cache for layer, cache in self.caches.items() if self.windows[layer] == window]
        for cache in {id(cache): cache for cache in caches}.values():
            kv_copy(backend, cache, pairs)


def _make_states(config: ModelConfig, num_slots: int) -> dict[int, tuple[F32, ...]]:
    """What no slot has used is not touched, so takes no memory."""
    return {
        layer: tuple(_zeros((num_slots, *shape)) for shape in state.shapes) for layer, state in config.states.items()
    }


def _zeros(shape: tuple[int, ...]) -> F32:
    if not shape[0]:
        raise ValueError("a model with states needs slots for them")
    zeros: F32 = huge_empty(4 * math.prod(shape)).view(np.float32).reshape(shape)
    return zeros


def _make_caches(
    backend: Backend, config: ModelConfig, counts: Mapping[int, int], form: KvForm, block_size: int
) -> dict[int, KvCache]:
    """By layer; a layer that shares another's has that one's."""
    owned = [layer.kv for layer in config.layers if isinstance(layer.kv, KvLayer)]
    sizes = [counts[kv.window] * _block_bytes(backend, kv, form, block_size) for kv in owned]
    gaps = _gaps(sizes)
    caches: dict[int, KvCache] = {}
    arena = Arena(sum(sizes) + sum(gaps) + ALIGNMENT * len(sizes))
    left = iter(gaps)
    for number, layer in enumerate(config.layers):
        if isinstance(kv := layer.kv, SharedKv):
            caches[number] = caches[kv.layer]
        elif isinstance(kv, KvLayer):
            arena.empty(next(left))
            caches[number] = empty_kv_cache(
                backend, counts[kv.window], block_size, kv.heads, kv.key_dim, kv.value_dim, form, arena
            )
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
        if isinstance(kv := layer.kv, KvLayer):
            sizes[kv.window] += -(-_block_bytes(backend, kv, form, block_size) // block_size)
    return sizes
