"""How a model's layers keep tokens: groups of layers that share block ids, and how many blocks each group has."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class KvKind(Enum):
    FULL = "full"  # keys and values of every token
    WINDOW = "window"  # of the last `window` tokens, the token itself included
    LATENT = "latent"  # one compressed vector of every token
    SHARED = "shared"  # nothing: reads what an earlier layer keeps


@dataclass(frozen=True)
class LayerKv:
    """What one layer keeps of a token."""

    kind: KvKind
    slot_bytes: int = 0  # over all its heads
    window: int = 0

    def __post_init__(self) -> None:
        if (self.window > 0) != (self.kind is KvKind.WINDOW):
            raise ValueError(f"a window belongs to window layers alone, not {self.window} to {self.kind.value}")
        if (self.slot_bytes > 0) == (self.kind is KvKind.SHARED):
            raise ValueError(f"{self.kind.value} layers cannot keep {self.slot_bytes} bytes a token")


@dataclass(frozen=True)
class KvGroup:
    """Layers of one window: a block is `block_size` tokens in each of them."""

    num_blocks: int
    window: int = 0  # 0: every token is kept
    slot_bytes: int = 1  # of a token in all its layers

    def __post_init__(self) -> None:
        if self.num_blocks < 1 or self.window < 0 or self.slot_bytes < 1:
            raise ValueError(f"no such group: {self}")

    def first_needed(self, position: int, block_size: int) -> int:
        """The first block that a query at this position, or after it, reads."""
        return max(0, position - self.window + 1) // block_size if self.window else 0


@dataclass(frozen=True)
class StateLayout:
    """Slots for the states of layers that keep no keys and values."""

    num_slots: int
    num_promised: int  # of them, that snapshots and drafts leave to running samples: two a sample
    stride: int  # tokens between snapshots along a prompt, a multiple of the block size
    slot_bytes: int = 1  # of all layers
    tail_tokens: int = 64  # before a prompt's end, where a second snapshot is taken: templates rewrite the last tokens

    def __post_init__(self) -> None:
        if not 2 <= self.num_promised <= self.num_slots or self.stride < 1:
            raise ValueError(f"no such slots: {self}")


@dataclass(frozen=True)
class KvLayout:
    block_size: int
    groups: tuple[KvGroup, ...]
    states: StateLayout | None = None  # of models that have any

    def __post_init__(self) -> None:
        if self.block_size < 1 or not self.groups:
            raise ValueError("a layout has at least one group, and blocks of at least one token")

    def blocks_for(self, num_tokens: int) -> int:
        return blocks_for(num_tokens, self.block_size)

    @property
    def total_bytes(self) -> int:
        states = 0 if self.states is None else self.states.num_slots * self.states.slot_bytes
        return states + sum(group.num_blocks * group.slot_bytes for group in self.groups) * self.block_size

    def price(self, num_prompt: int, num_new: int, num_samples: int, max_chunk: int) -> tuple[int, ...]:
        """Blocks of each group that a request takes at most: its samples share the prompt's full blocks.

        The last new token is never computed on, so it takes no slot.
        """
        length = num_prompt + num_new - 1
        shared = num_prompt // self.block_size if num_samples > 1 else 0
        full = shared + num_samples * (self.blocks_for(length) - shared)
        return tuple(
            min(full, num_samples * self._window_blocks(group.window, length, max_chunk)) if group.window else full
            for group in self.groups
        )

    def _window_blocks(self, window: int, length: int, max_chunk: int) -> int:
        return min(self.blocks_for(length), window_blocks(window, max_chunk, self.block_size))


def blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def window_blocks(window: int, max_chunk: int, block_size: int) -> int:
    """Blocks that hold a window and a chunk, before blocks that left the window are released."""
    return blocks_for(window - 1 + max_chunk, block_size) + 1


def make_layout(
    layers: Sequence[LayerKv], block_size: int, budget_bytes: int, typical_tokens: int = 2048, max_chunk: int = 512
) -> KvLayout:
    """Divide bytes among the groups so that all are full at once when requests have the typical length."""
    slot_bytes: dict[int, int] = {}
    for layer in layers:
        if layer.kind is not KvKind.SHARED:
            slot_bytes[layer.window] = slot_bytes.get(layer.window, 0) + layer.slot_bytes
    if not slot_bytes:
        raise ValueError("no layer keeps anything")
    probe = KvLayout(block_size, tuple(KvGroup(1, window, slot_bytes[window]) for window in sorted(slot_bytes)))
    typical = probe.price(typical_tokens, 1, 1, max_chunk)
    request_bytes = sum(blocks * group.slot_bytes for blocks, group in zip(typical, probe.groups, strict=True))
    share = budget_bytes // block_size / request_bytes
    counts = [int(blocks * share) for blocks in typical]
    if min(counts) < 1:
        raise ValueError(f"{budget_bytes} bytes hold not one block of {block_size} tokens in every group")
    groups = zip(counts, probe.groups, strict=True)
    return KvLayout(block_size, tuple(KvGroup(count, group.window, group.slot_bytes) for count, group in groups))
