"""Which block holds which tokens: the allocator of block ids, a tree of shared prefixes. Ids, never bytes."""

from surefoot.kv.layout import KvGroup, KvKind, KvLayout, LayerKv, blocks_for, make_layout, window_blocks
from surefoot.kv.manager import Holding, KvManager, KvUsage
from surefoot.kv.pool import BlockPool
from surefoot.kv.prefix_tree import BlockKey, PrefixNode

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
    "blocks_for",
    "make_layout",
    "window_blocks",
]
