"""The block allocator: block ids of one group, how often each is held, and which cached block is evicted first."""

from collections import OrderedDict
from itertools import islice

from surefoot.core import NO_BLOCK


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
