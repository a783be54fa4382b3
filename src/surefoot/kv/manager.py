"""Which sample holds which blocks: tables grow with the tokens, share prefixes, and are copied before they diverge."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from surefoot.core import NO_BLOCK, BlockCopy, BlockTable
from surefoot.kv.blocks import (
    PUBLIC,
    BlockKey,
    BlockPool,
    HeldStates,
    KvLayout,
    PrefixNode,
    PrefixTree,
    visible_child,
)
from surefoot.kv.states import StateSlots


class Holding:
    """One sample's blocks."""

    __slots__ = ("cursor", "firsts", "namespace", "num_computed", "num_public_tokens", "num_shared", "states", "tables")

    def __init__(self, namespace: str, num_public_tokens: int, cursor: PrefixNode, num_groups: int) -> None:
        self.namespace = namespace
        self.num_public_tokens = num_public_tokens
        self.cursor = cursor  # the tree's node of its last shared block
        self.num_shared = 0  # first blocks that are in the tree, on the path to the cursor
        self.num_computed = 0  # tokens
        # One per group, all of one length; replaced, never changed in place, so that a plan can keep them.
        self.tables: tuple[BlockTable, ...] = ((),) * num_groups
        self.firsts = [0] * num_groups  # per group, the first entry still held: those before have left the window
        self.states = HeldStates()

    @property
    def num_blocks(self) -> int:
        return len(self.tables[0])


@dataclass(frozen=True)
class KvUsage:
    """Blocks of one group, by state."""

    num_blocks: int
    num_free: int
    num_cached: int
    num_held: int
    unused_slots: int  # slots of held blocks that hold no token


class KvManager:
    """Block ids, never bytes. Every change is one of: adopt, extend, commit, fork, release.

    Held blocks are never evicted. A request that holds a block of a full group holds all before it, and releases them
    last block first. So cached blocks of a node come after those of the nodes below it, and the least recently used
    block is always a leaf: eviction needs no search.
    """

    def __init__(
        self,
        layout: KvLayout,
        caching: bool = True,
        on_shared: Callable[[PrefixNode], None] = lambda node: None,
        on_snapshot: Callable[[PrefixNode], None] = lambda node: None,
    ) -> None:
        """on_shared: called with each node that enters the tree. Its blocks never change until they are evicted.
        on_snapshot: as of `StateSlots`; the node has entered the tree before."""
        self.layout = layout
        self.caching = caching
        self._on_shared = on_shared
        self.tree = PrefixTree()
        self.pools = tuple(BlockPool(group.num_blocks) for group in layout.groups)
        self._nodes: tuple[dict[int, PrefixNode], ...] = tuple(
            {} for _ in layout.groups
        )  # by block, of those in the tree
        self._windows = tuple(number for number, group in enumerate(layout.groups) if group.window)
        self.states = None if layout.states is None else StateSlots(layout.states, self.tree, on_snapshot)
        self._open: set[Holding] = set()

    def open(self, namespace: str = "", num_public_tokens: int = 0) -> Holding:
        """An empty holding."""
        holding = Holding(namespace, num_public_tokens, self.tree.root, len(self.pools))
        self.tree.root.num_cursors += 1
        self._open.add(holding)
        return holding

    def close(self, holding: Holding) -> None:
        self.release(holding)
        self.tree.root.num_cursors -= 1
        self._open.remove(holding)

    # ---- prefixes ----

    def match(self, holding: Holding, keys: Sequence[BlockKey]) -> list[PrefixNode]:
        """The nodes that could be adopted: the longest cached path after what it holds, of equally long paths the most
        public one. Modifies nothing.

        keys: the tokens of its full blocks, from the first on.
        """
        size = self.layout.block_size
        at_boundary = holding.num_computed == holding.num_shared * size == holding.num_blocks * size
        if not self.caching or not at_boundary or holding.num_shared >= len(keys):
            return []
        best: list[PrefixNode] = []
        for nodes in self.tree.paths(holding.cursor, keys[holding.num_shared :], holding.namespace):
            usable = (
                self._num_with_state(holding, nodes) if self.states is not None else self._num_usable(holding, nodes)
            )
            if usable > len(best):
                best = nodes[:usable]
        return best

    def num_known(self, holding: Holding, keys: Sequence[BlockKey]) -> int:
        """Tokens, from the first on, whose keys and values the tree had, with a state or without."""
        paths = self.tree.paths(holding.cursor, keys[holding.num_shared :], holding.namespace)
        return (holding.num_shared + max(map(len, paths))) * self.layout.block_size if self.caching else 0

    def _num_with_state(self, holding: Holding, nodes: list[PrefixNode]) -> int:
        """Nodes up to the last one that has a snapshot and from which every window reaches its blocks."""
        usable = len(nodes)
        while usable:
            usable = self._num_usable(holding, nodes[:usable])
            if not usable or nodes[usable - 1].state != NO_BLOCK:
                break
            usable -= 1
        return usable

    def _num_usable(self, holding: Holding, nodes: list[PrefixNode]) -> int:
        """Nodes up to the last one after which every window group still has all blocks that the window reaches."""
        if not self._windows:
            return len(nodes)
        usable, before, size = len(nodes), holding.num_shared, self.layout.block_size
        changed = True
        while changed:
            changed = False
            for number in self._windows:
                first = self.layout.groups[number].first_needed((before + usable) * size, size) - before
                for index in range(usable - 1, max(first, 0) - 1, -1):
                    if nodes[index].blocks[number] == NO_BLOCK:
                        usable, changed = index, True
                        break
        return usable

    def adopt(self, holding: Holding, keys: Sequence[BlockKey]) -> int:
        """Take the cached blocks; the number of tokens that need no computing."""
        nodes = self.match(holding, keys)
        if not nodes:
            return 0
        size = self.layout.block_size
        holding.num_computed += len(nodes) * size
        holding.num_shared += len(nodes)
        holding.tables = tuple(
            table + self._hold_nodes(number, nodes, holding) for number, table in enumerate(holding.tables)
        )
        self._move_cursor(holding, nodes[-1])
        if self.states is not None:
            self.states.adopt(holding.states, nodes[-1])
        self._slide(holding)
        return len(nodes) * size

    def _hold_nodes(self, number: int, nodes: list[PrefixNode], holding: Holding) -> BlockTable:
        size, before = self.layout.block_size, holding.num_blocks
        first = self.layout.groups[number].first_needed(holding.num_computed, size) - before
        blocks = tuple(node.blocks[number] if index >= first else NO_BLOCK for index, node in enumerate(nodes))
        for block in blocks[max(first, 0) :]:
            self.pools[number].hold(block)
        return blocks

    def has_room(
        self, holding: Holding, nodes: Sequence[PrefixNode], price: Sequence[int], reserved: Sequence[int]
    ) -> bool:
        """Whether `price` blocks of each group, the nodes' among them, are available and leave `reserved` over."""
        size, before = self.layout.block_size, holding.num_shared
        for number, pool in enumerate(self.pools):
            first = self.layout.groups[number].first_needed((before + len(nodes)) * size, size) - before
            known = nodes[max(first, 0) :]
            cached = sum(pool.is_cached(node.blocks[number]) for node in known)
            if pool.num_available - cached < price[number] - len(known) + reserved[number]:
                return False
        return True

    # ---- growth ----

    def extend(self, holding: Holding, num_tokens: int) -> list[BlockCopy] | None:
        """Blocks for `num_tokens` tokens in all, writable from the first uncomputed token on.

        Returns the copies to make before anything is written; None, and nothing has changed, if there is no room.
        """
        size, num_held = self.layout.block_size, holding.num_blocks
        num_fresh, first = max(0, -(-num_tokens // size) - num_held), holding.num_computed // size
        shared = self._shared_groups(holding, first) if first < num_held else ()
        for number, pool in enumerate(self.pools):
            if pool.num_available < num_fresh + (number in shared):
                return None
        copies = [self._copy_block(holding, number, first) for number in shared]
        if num_fresh:
            holding.tables = tuple(
                [self._longer(number, table, num_fresh) for number, table in enumerate(holding.tables)]
            )
        return copies

    def _longer(self, number: int, table: BlockTable, num_fresh: int) -> BlockTable:
        return (*table, *[self._allocate(number) for _ in range(num_fresh)])

    def _shared_groups(self, holding: Holding, index: int) -> list[int]:
        """Groups in which another sample holds its block of that index too."""
        return [number for number, pool in enumerate(self.pools) if pool.is_shared(holding.tables[number][index])]

    def _copy_block(self, holding: Holding, number: int, index: int) -> BlockCopy:
        table = holding.tables[number]
        source, target = table[index], self._allocate(number)
        self.pools[number].release(source)
        self._replace_table(holding, number, (*table[:index], target, *table[index + 1 :]))
        return BlockCopy(number, source, target)

    def _replace_table(self, holding: Holding, number: int, table: BlockTable) -> None:
        holding.tables = (*holding.tables[:number], table, *holding.tables[number + 1 :])

    def _allocate(self, number: int) -> int:
        pool = self.pools[number]
        if not pool.num_free:
            self._evict(number, pool.least_recently_used())
        return pool.allocate()

    def _evict(self, number: int, block: int) -> None:
        """A window's block goes alone. A full group's goes with its node, which is a leaf (see the class)."""
        node = self._nodes[number][block]
        if self.layout.groups[number].window:
            self._leave_tree(number, node)
        else:
            for other in range(len(self.pools)):
                self._leave_tree(other, node)
        if self.states is not None and all(block == NO_BLOCK for block in node.blocks):
            self.states.forget(node)
        self.tree.prune(node)

    def _leave_tree(self, number: int, node: PrefixNode) -> None:
        block = node.blocks[number]
        if block != NO_BLOCK:
            node.blocks[number] = NO_BLOCK
            del self._nodes[number][block]
            self.pools[number].leave_tree(block)

    # ---- after a step ----

    def commit(self, holding: Holding, num_computed: int, keys: Sequence[BlockKey]) -> None:
        """`num_computed` tokens are computed now: full blocks enter the tree, blocks that left a window are released.

        keys: of its full blocks; none if they are not to be shared."""
        holding.num_computed = num_computed
        num_full = min(num_computed // self.layout.block_size, len(keys)) if self.caching else 0
        while holding.num_shared < num_full:
            self._share_block(holding, keys[holding.num_shared])
            if self.states is not None:
                self.states.offer(holding.states, holding.cursor, holding.num_shared * self.layout.block_size)
        if self.states is not None:
            self.states.commit(holding.states, num_computed)
        if self._windows:
            self._slide(holding)

    def _share_block(self, holding: Holding, key: BlockKey) -> None:
        """Put the next full block into the tree; or take the one that is there already and release its own."""
        index, parent = holding.num_shared, holding.cursor
        end = (index + 1) * self.layout.block_size
        if end <= holding.num_public_tokens and parent.namespace is PUBLIC:
            namespace, node = PUBLIC, parent.children.get((PUBLIC, key))
        else:
            namespace, node = holding.namespace, visible_child(parent, key, holding.namespace)
        is_new = node is None
        if node is None:
            node = self.tree.insert(parent, key, namespace, [NO_BLOCK] * len(self.pools))
        for number in range(len(self.pools)):
            self._merge_block(holding, number, index, node)
        holding.num_shared += 1
        self._move_cursor(holding, node)
        if is_new:
            self._on_shared(node)

    def _merge_block(self, holding: Holding, number: int, index: int, node: PrefixNode) -> None:
        table, pool = holding.tables[number], self.pools[number]
        own, known = table[index], node.blocks[number]
        if own in (NO_BLOCK, known):
            return
        if known == NO_BLOCK:
            node.blocks[number] = own
            self._nodes[number][own] = node
            pool.enter_tree(own)
        else:
            pool.hold(known)
            pool.release(own)
            self._replace_table(holding, number, (*table[:index], known, *table[index + 1 :]))

    def _slide(self, holding: Holding) -> None:
        """Release the blocks that no later token of the request will read."""
        size = self.layout.block_size
        for number in self._windows:
            first, table = holding.firsts[number], holding.tables[number]
            needed = min(self.layout.groups[number].first_needed(holding.num_computed, size), len(table))
            if needed <= first:
                continue
            for block in table[first:needed]:
                if block != NO_BLOCK:
                    self.pools[number].release(block)
            self._replace_table(holding, number, (NO_BLOCK,) * needed + table[needed:])
            holding.firsts[number] = needed

    def next_change(self, num_computed: int) -> int:
        """The number of computed tokens at which a commit next changes more than the count."""
        size = self.layout.block_size
        change = (num_computed // size + 1) * size
        for number in self._windows:
            group = self.layout.groups[number]
            change = min(change, (group.first_needed(num_computed, size) + 1) * size + group.window - 1)
        return change

    def _move_cursor(self, holding: Holding, node: PrefixNode) -> None:
        holding.cursor.num_cursors -= 1
        node.num_cursors += 1
        holding.cursor = node

    # ---- forks and releases ----

    def fork(self, holding: Holding) -> Holding:
        """Another holding of the same tokens: it shares every block, and copies the one it writes to first."""
        other = self.open(holding.namespace, holding.num_public_tokens)
        used = self.layout.blocks_for(holding.num_computed)
        other.num_computed, other.num_shared = holding.num_computed, holding.num_shared
        other.tables = tuple(table[:used] for table in holding.tables)
        other.firsts = list(holding.firsts)
        for pool, table in zip(self.pools, other.tables, strict=True):
            for block in table:
                if block != NO_BLOCK:
                    pool.hold(block)
        self._move_cursor(other, holding.cursor)
        if self.states is not None:
            other.states = self.states.fork(holding.states)
        return other

    def release(self, holding: Holding) -> None:
        """Release all blocks, the last one first; those in the tree stay cached until they are evicted."""
        if self.states is not None:
            self.states.release(holding.states)
        for pool, table in zip(self.pools, holding.tables, strict=True):
            for block in reversed(table):
                if block != NO_BLOCK:
                    pool.release(block)
        left = holding.cursor
        self._move_cursor(holding, self.tree.root)
        self.tree.prune(left)
        holding.num_shared = holding.num_computed = 0
        holding.tables = ((),) * len(self.pools)
        holding.firsts = [0] * len(self.pools)

    # ---- checks ----

    def usage(self) -> list[KvUsage]:
        return [self._group_usage(number, pool) for number, pool in enumerate(self.pools)]

    def _group_usage(self, number: int, pool: BlockPool) -> KvUsage:
        size = self.layout.block_size
        filled: dict[int, int] = {}
        for holding in self._open:
            for index in range(holding.num_computed // size, holding.num_blocks):
                block, tokens = holding.tables[number][index], max(0, holding.num_computed - index * size)
                filled[block] = max(filled.get(block, 0), tokens)
        unused = sum(size - tokens for tokens in filled.values())
        num_held = pool.num_blocks - pool.num_available
        return KvUsage(pool.num_blocks, pool.num_free, pool.num_cached, num_held, unused)

    def audit(self) -> None:
        """Recount everything from the tables and the tree. For tests: it visits everything."""
        for number, pool in enumerate(self.pools):
            tables = (holding.tables[number] for holding in self._open)
            held = Counter(block for table in tables for block in table if block != NO_BLOCK)
            in_tree = {node.blocks[number]: node for node in self.tree if node.blocks[number] != NO_BLOCK}
            assert in_tree == self._nodes[number]
            assert len(in_tree) == sum(node.blocks[number] != NO_BLOCK for node in self.tree), "a block in two nodes"
            pool.audit(dict(held), set(in_tree))
        if self.states is not None:
            self.states.audit((holding.states for holding in self._open), self.tree)
        self._audit_tree()
        for holding in self._open:
            self._audit_holding(holding)

    def _audit_tree(self) -> None:
        nodes = list(self.tree)
        assert len(nodes) == self.tree.num_nodes
        cursors = Counter(holding.cursor for holding in self._open)
        for node in [*nodes, self.tree.root]:
            assert node.num_cursors == cursors[node]
        for node in nodes:
            assert node.parent is not None
            assert node.parent.children[node.namespace, node.key] is node
            assert not node.is_unused, "a node that nothing needs"
            assert node.namespace is not PUBLIC or node.parent.namespace is PUBLIC, "public below private"
            assert len(node.key) == self.layout.block_size
            for number, group in enumerate(self.layout.groups):
                assert group.window or node.blocks[number] != NO_BLOCK, "a node without its full block"

    def _audit_holding(self, holding: Holding) -> None:
        size = self.layout.block_size
        assert len({len(table) for table in holding.tables}) == 1
        assert holding.num_computed <= holding.num_blocks * size
        path: list[PrefixNode] = []
        node = holding.cursor
        while node.parent is not None:
            assert node.namespace in (PUBLIC, holding.namespace), "another namespace's block"
            path.append(node)
            node = node.parent
        assert len(path) == holding.num_shared
        for number, group in enumerate(self.layout.groups):
            first, table = holding.firsts[number], holding.tables[number]
            assert first == min(group.first_needed(holding.num_computed, size), holding.num_blocks)
            assert all((block == NO_BLOCK) == (index < first) for index, block in enumerate(table))
            for index in range(first, holding.num_shared):
                assert table[index] == path[-1 - index].blocks[number]
