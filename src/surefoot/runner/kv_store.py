"""The bytes that every layer keeps of requests: keys and values, or states."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from surefoot.core import NO_BLOCK
from surefoot.kv import blocks_for
from surefoot.models import KvLayer, LayerMemory, ModelConfig, SharedKv
from surefoot.ops import Arena, Backend, KvCache, KvForm, empty_kv_cache, huge_empty, kv_copy
from surefoot.ops.arrays import ALIGNMENT, F32, U8
from surefoot.ops.kv import HUGE_PAGE


class KvStore:
    """Layers of one window share block ids: a block is `block_size` tokens in each of them. Layers with states share
    slot ids."""

    def __init__(
        self, backend: Backend, config: ModelConfig, max_context: int, num_blocks: Mapping[int, int],
        form: KvForm = KvForm.KEYS_TWO_LIMBS, block_size: int = 64, num_slots: int = 0, num_draft_blocks: int = 0,
    ) -> None:  # fmt: skip
        """max_context: tokens of one request. num_blocks: by window. num_slots: of states. num_draft_blocks: for tokens
        that the model's own layer drafts, after its other blocks."""
        self.block_size = block_size
        self.table_width = blocks_for(max_context, block_size)  # blocks in one request's table
        counts = _num_blocks(config, num_blocks, num_draft_blocks)
        self.caches = _make_caches(backend, config, counts, form, block_size)  # by layer
        self.num_draft_blocks = num_draft_blocks
        self.windows = {layer: config.kv(layer).window for layer in self.caches}
        self._block_rows = _block_rows(self.caches, self.windows)
        self.memory = LayerMemory(self.caches, _make_states(config, num_slots))
        arrays = (array for arrays in self.memory.states.values() for array in arrays)
        self._state_rows: list[U8] = [array.reshape(len(array), -1).view(np.uint8) for array in arrays]

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

    # ---- blocks as bytes ----

    @property
    def block_bytes(self) -> int:
        """Of a block in every layer of every window."""
        return sum(rows.shape[1] for _, rows in self._block_rows)

    def read_blocks(self, blocks: Mapping[int, Sequence[int]]) -> U8:
        """Blocks by window as rows of bytes: those of the first window's layers come first."""
        num_blocks = len(next(iter(blocks.values())))
        data, start = np.empty((num_blocks, self.block_bytes), np.uint8), 0
        for window, rows in self._block_rows:
            end = start + rows.shape[1]
            data[:, start:end] = rows[list(blocks[window])]
            start = end
        return data

    def write_blocks(self, blocks: Mapping[int, Sequence[int]], payloads: Sequence[bytes]) -> None:
        """The inverse of `read_blocks`. NO_BLOCK: those bytes are not needed."""
        start = 0
        for window, rows in self._block_rows:
            end = start + rows.shape[1]
            for block, payload in zip(blocks[window], payloads, strict=True):
                if block != NO_BLOCK:
                    rows[block] = np.frombuffer(payload, np.uint8, end - start, start)
            start = end

    # ---- states as bytes ----

    @property
    def state_bytes(self) -> int:
        """Of a slot in every layer."""
        return sum(rows.shape[1] for rows in self._state_rows)

    def read_state(self, slot: int, start: int, end: int) -> U8:
        """A copy of these bytes of a slot: those of the first layer's arrays come first."""
        return np.concatenate(list(self._state_pieces(slot, start, end)))

    def write_state(self, slot: int, payload: bytes) -> None:
        """All bytes of a slot."""
        start = 0
        for piece in self._state_pieces(slot, 0, self.state_bytes):
            piece[:] = np.frombuffer(payload, np.uint8, len(piece), start)
            start += len(piece)

    def _state_pieces(self, slot: int, start: int, end: int) -> Iterator[U8]:
        """Views of a slot's bytes from `start` to `end`."""
        for rows in self._state_rows:
            size = rows.shape[1]
            if start < size and end > 0:
                yield rows[slot, max(start, 0) : min(end, size)]
            start, end = start - size, end - size


def _block_rows(caches: Mapping[int, KvCache], windows: Mapping[int, int]) -> list[tuple[int, U8]]:
    """Every cache once, with its window: [blocks, bytes], ordered by window and layer."""
    owned: dict[int, tuple[int, KvCache]] = {}
    for layer, cache in caches.items():
        owned.setdefault(id(cache), (windows[layer], cache))
    ordered = sorted(owned.values(), key=lambda pair: pair[0])
    return [(window, cache.data.reshape(cache.num_blocks, -1)) for window, cache in ordered]


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


def _num_blocks(config: ModelConfig, by_window: Mapping[int, int], num_draft_blocks: int) -> dict[int, int]:
    """Of each layer that has keys and values of its own."""
    owned = {number: layer.kv for number, layer in enumerate(config.kept_layers) if isinstance(layer.kv, KvLayer)}
    return {
        number: by_window[kv.window] + (num_draft_blocks if number >= len(config.layers) else 0)
        for number, kv in owned.items()
    }


def _make_caches(
    backend: Backend, config: ModelConfig, counts: Mapping[int, int], form: KvForm, block_size: int
) -> dict[int, KvCache]:
    """By layer; a layer that shares another's has that one's. counts: blocks by layer."""
    sizes = [count * _block_bytes(backend, config.kv(layer), form, block_size) for layer, count in counts.items()]
    gaps = _gaps(sizes)
    caches: dict[int, KvCache] = {}
    arena = Arena(sum(sizes) + sum(gaps) + ALIGNMENT * len(sizes))
    left = iter(gaps)
    for number, layer in enumerate(config.kept_layers):
        if isinstance(kv := layer.kv, SharedKv):
            caches[number] = caches[kv.layer]
        elif isinstance(kv, KvLayer):
            arena.empty(next(left))
            caches[number] = empty_kv_cache(
                backend, counts[number], block_size, kv.heads, kv.key_dim, kv.value_dim, form, arena
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
    for layer in config.kept_layers:
        if isinstance(kv := layer.kv, KvLayer):
            sizes[kv.window] += -(-_block_bytes(backend, kv, form, block_size) // block_size)
    return sizes
