"""A naive model of what lies in the blocks: the bytes that the ids stand for."""

from surefoot.core import NO_BLOCK, BlockCopy, ChunkStates
from surefoot.kv import BlockKey, Holding, KvLayout, KvManager


def keys_of(tokens: list[int], block_size: int) -> list[BlockKey]:
    full = len(tokens) // block_size * block_size
    return [tuple(tokens[start : start + block_size]) for start in range(0, full, block_size)]


class Memory:
    """Each slot holds the whole text up to its token, which is what keys and values depend on."""

    def __init__(self, layout: KvLayout) -> None:
        self.layout = layout
        self.blocks = [[[()] * layout.block_size for _ in range(group.num_blocks)] for group in layout.groups]
        self.states: dict[int, tuple[int, ...]] = {}  # by slot: the whole text that the state depends on

    def copy(self, copies: list[BlockCopy]) -> None:
        for group, source, target in copies:
            self.blocks[group][target] = list(self.blocks[group][source])

    def write(self, tables: tuple[tuple[int, ...], ...], tokens: list[int], start: int, end: int) -> None:
        for group, table in enumerate(tables):
            for position in range(start, end):
                block, place = divmod(position, self.layout.block_size)
                self.blocks[group][table[block]][place] = tuple(tokens[: position + 1])

    def write_states(self, states: ChunkStates, tokens: list[int], start: int) -> None:
        """A chunk goes on from the state of its own text."""
        assert self.states[states.load] == tuple(tokens[:start]) if start else states.load == NO_BLOCK
        assert states.load not in [slot for _, slot in states.saves]
        for row, slot in states.saves:
            self.states[slot] = tuple(tokens[: start + row + 1])

    def check_states(self, kv: KvManager) -> None:
        """Snapshots are those of the tokens that lead to them."""
        for node in kv.tree:
            path, text = node, list[int]()
            while path.parent is not None:
                text[:0] = path.key
                path = path.parent
            assert node.state == NO_BLOCK or self.states[node.state] == tuple(text)

    def check(self, tables: tuple[tuple[int, ...], ...], tokens: list[int], num_computed: int) -> None:
        """All that a query at num_computed can see is there, and is this text's."""
        for group, table in enumerate(tables):
            window = self.layout.groups[group].window
            for position in range(max(0, num_computed - window + 1) if window else 0, num_computed):
                block, place = divmod(position, self.layout.block_size)
                assert table[block] != NO_BLOCK
                assert self.blocks[group][table[block]][place] == tuple(tokens[: position + 1])


def longest_match(kv: KvManager, holding: Holding, keys: list[BlockKey]) -> int:
    """How many blocks could be adopted, by trying every node: slow and plain."""
    size, best = kv.layout.block_size, 0
    for node in kv.tree:
        path = [node]
        while (parent := path[0].parent) is not None and parent.parent is not None:
            path.insert(0, parent)
        spells = [one.key for one in path] == keys[: len(path)]
        seen = all(one.namespace in (None, holding.namespace) for one in path)
        behind = len(path) > holding.num_shared
        starts_here = holding.num_shared == 0 or (behind and path[holding.num_shared - 1] is holding.cursor)
        complete = all(
            path[index].blocks[number] != NO_BLOCK
            for number, group in enumerate(kv.layout.groups)
            for index in range(max(group.first_needed(len(path) * size, size), holding.num_shared), len(path))
        )
        complete &= kv.states is None or node.state != NO_BLOCK
        if spells and seen and behind and starts_here and complete:
            best = max(best, len(path) - holding.num_shared)
    return best
