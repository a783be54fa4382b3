"""Blocks of a KV cache, and slots of states: how a model's layers share them (layout), which are free (pool), which
hold a prefix (tree)."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import NamedTuple

from surefoot.core import NO_BLOCK

BlockKey = tuple[int, ...]  # a full block's tokens
PUBLIC = None


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


class BlockPool:
    """A block is in one of four states:

    free: holds nothing; private: held by requests alone; locked: held and in the tree; cached: in the tree alone.
    Cached blocks are in the order of their release, the least recently used first. Every operation takes constant time.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._holders = [0] * num_blocks
        self._in_tree = bytearray(num_blocks)
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        """Free blocks, and cached ones, which can be evicted."""
        return len(self._free) + len(self._cached)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    def allocate(self) -> int:
        """A free block, held once."""
        block = self._free.pop()
        self._holders[block] = 1
        return block

    def hold(self, block: int) -> None:
        if self._holders[block] == 0:
            del self._cached[block]
        self._holders[block] += 1

    def release(self, block: int) -> None:
        self._holders[block] -= 1
        if self._holders[block] == 0:
            if self._in_tree[block]:
                self._cached[block] = None
            else:
                self._free.append(block)

    def is_shared(self, block: int) -> bool:
        return self._holders[block] > 1

    def is_cached(self, block: int) -> bool:
        return block in self._cached

    def enter_tree(self, block: int) -> None:
        self._in_tree[block] = 1

    def leave_tree(self, block: int) -> None:
        """Only of a cached block, which becomes free."""
        del self._cached[block]
        self._in_tree[block] = 0
        self._free.append(block)

    def least_recently_used(self) -> int:
        """The cached block to evict first, or NO_BLOCK."""
        return next(iter(self._cached), NO_BLOCK)

    def least_recent(self, most: int) -> list[int]:
        """At most that many cached blocks, the least recently used first."""
        return list(islice(self._cached, most))

    def audit(self, holders: dict[int, int], in_tree: set[int]) -> None:
        """Compare with what the tables and the tree say; free + cached + locked + private is the total."""
        assert {block for block in range(self.num_blocks) if self._in_tree[block]} == in_tree
        assert {block: count for block, count in enumerate(self._holders) if count} == holders
        assert set(self._cached) == in_tree - holders.keys(), (
            "cached blocks are those of the tree that no request holds"
        )
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        assert not free & (in_tree | holders.keys())
        num_locked, num_private = len(in_tree & holders.keys()), len(holders.keys() - in_tree)
        assert len(free) + len(self._cached) + num_locked + num_private == self.num_blocks


class PrefixNode:
    """A full block's tokens, reached by all tokens before them."""

    __slots__ = ("blocks", "children", "digest", "is_tail", "key", "namespace", "num_cursors", "parent", "state")

    def __init__(self, parent: "PrefixNode | None", namespace: str | None, key: BlockKey, blocks: list[int]) -> None:
        self.parent = parent
        self.namespace = namespace
        self.key = key
        self.blocks = blocks  # one per group; NO_BLOCK where it was evicted
        self.children: dict[tuple[str | None, BlockKey], PrefixNode] = {}
        self.num_cursors = 0  # holdings whose last full block this is
        self.state = NO_BLOCK  # the slot of the state after its tokens, if there is a snapshot
        self.digest = b""  # its name outside of memory, once it has one
        self.is_tail = False  # its snapshot goes when the sample that took it takes the next

    @property
    def is_unused(self) -> bool:
        if self.children or self.num_cursors or self.state != NO_BLOCK:
            return False
        return all(block == NO_BLOCK for block in self.blocks)


class StateSave(NamedTuple):
    """A slot that a step writes."""

    position: int  # the state is that after so many tokens
    slot: int
    keeps: bool  # a snapshot that is wanted; otherwise it is the sample's tail until its next snapshot


class HeldStates:
    """One sample's slots."""

    __slots__ = ("current", "saves", "tail")

    def __init__(self) -> None:
        self.current = NO_BLOCK  # the state after the tokens that are computed; NO_BLOCK: none is
        self.saves: tuple[StateSave, ...] = ()  # of the step that is planned; the last position comes first
        self.tail: PrefixNode | None = None  # where its last unasked snapshot is


class PrefixTree:
    """Full blocks by the tokens that lead to them: a node is one block (in every group).

    A node is reached by all tokens from position 0, since a token's keys and values depend on everything before it.
    Nodes belong to a namespace or are public. A public node never stands below a private one: a path is public, then
    private. The tree knows blocks by number alone: the manager knows which are held, and evicts.
    """

    def __init__(self) -> None:
        self.root = PrefixNode(None, PUBLIC, (), [])
        self.num_nodes = 0

    def paths(self, start: PrefixNode, keys: Sequence[BlockKey], namespace: str) -> Iterator[list[PrefixNode]]:
        """Every path below start that spells the keys as far as it goes and as far as the namespace sees, the most
        public first: a private path may leave the public one anywhere. Modifies nothing."""
        public = _walk(start, keys, 0, PUBLIC) if start.namespace is PUBLIC else []
        yield public
        for depth in range(len(public), -1, -1):
            private = _walk(public[depth - 1] if depth else start, keys, depth, namespace)
            if private:
                yield public[:depth] + private

    def insert(self, parent: PrefixNode, key: BlockKey, namespace: str | None, blocks: list[int]) -> PrefixNode:
        node = PrefixNode(parent, namespace, key, blocks)
        parent.children[namespace, key] = node
        self.num_nodes += 1
        return node

    def prune(self, node: PrefixNode) -> None:
        """Remove the node, and those above it, while nothing needs them."""
        while node.parent is not None and node.is_unused:
            del node.parent.children[node.namespace, node.key]
            self.num_nodes -= 1
            node = node.parent

    def __iter__(self) -> Iterator[PrefixNode]:
        """Every node but the root."""
        open_nodes = list(self.root.children.values())
        while open_nodes:
            node = open_nodes.pop()
            yield node
            open_nodes.extend(node.children.values())


def visible_child(node: PrefixNode, key: BlockKey, namespace: str) -> PrefixNode | None:
    return node.children.get((PUBLIC, key)) or node.children.get((namespace, key))


def _walk(node: PrefixNode, keys: Sequence[BlockKey], first: int, namespace: str | None) -> list[PrefixNode]:
    path: list[PrefixNode] = []
    while first < len(keys) and (child := node.children.get((namespace, keys[first]))) is not None:
        path.append(child)
        node, first = child, first + 1
    return path
