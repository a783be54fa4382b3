"""Which block holds which tokens: the allocator of block ids, a tree of shared prefixes. Ids, never bytes."""

from surefoot.kv.blocks import (
    BlockKey,
    BlockPool,
    KvGroup,
    KvKind,
    KvLayout,
    LayerKv,
    PrefixNode,
    StateLayout,
    blocks_for,
    make_layout,
    window_blocks,
)
from surefoot.kv.manager import Holding, KvManager, KvUsage
from surefoot.kv.states import num_saved_blocks, snapshot_positions

__all__ = [
    "BlockKey",
    "BlockPool",
    "Holding",
    "KvGroup",
    "KvKind",
    "KvLayout",
    "KvManager",
    "KvUsage",
    "LayerKv",
    "PrefixNode",
    "StateLayout",
    "blocks_for",
    "make_layout",
    "num_saved_blocks",
    "snapshot_positions",
    "window_blocks",
]
