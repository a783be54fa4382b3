"""Full blocks by the tokens that lead to them: a tree with one block (in every group) to a node.

A node is reached by all tokens from position 0, since a token's keys and values depend on everything before it. Nodes
belong to a namespace or are public. A public node never stands below a private one: a path is public, then private.
"""

from collections.abc import Iterator, Sequence

from surefoot.core import NO_BLOCK

BlockKey = tuple[int, ...]  # a full block's tokens
PUBLIC = None


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


class PrefixTree:
    """Knows blocks by number alone: the manager knows which are held, and evicts."""

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
