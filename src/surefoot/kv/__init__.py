"""Which block holds which tokens: pools of block ids, a tree of shared prefixes. Ids, never bytes."""

from surefoot.kv.layout import KvGroup, KvKind, KvLayout, LayerKv, make_layout
from surefoot.kv.manager import Holding, KvManager, KvUsage
from surefoot.kv.prefix_tree import BlockKey, Node

__all__ = [
    "BlockKey",
    "Holding",
    "KvGroup",
    "KvKind",
    "KvLayout",
    "KvManager",
    "KvUsage",
    "LayerKv",
    "Node",
    "make_layout",
]
