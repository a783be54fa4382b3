"""Slots of states: which slot a sample goes on from, which ones a step saves to, and snapshots in the prefix tree."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from surefoot.core import NO_BLOCK, ChunkStates
from surefoot.kv.blocks import BlockPool, HeldStates, PrefixNode, PrefixTree, StateLayout, StateSave

NUM_COMPARED = 8  # snapshots, those unused longest, of which the one that saves least computing is evicted


class StateSlots:
    """Slot ids, never bytes. A step reads the current slot and writes others, so that it can be repeated.

    A slot is current for a sample (or for several, after a fork), saved to by a step, a snapshot, or free. `promised`
    slots are never taken for drafts and snapshots: every running sample finds one to save to.
    """

    def __init__(
        self, layout: StateLayout, tree: PrefixTree, on_snapshot: Callable[[PrefixNode], None] = lambda node: None
    ) -> None:
        """on_snapshot: called with each node whose snapshot is to stay, until it is evicted. It never changes."""
        self.layout = layout
        self._on_snapshot = on_snapshot
        self.pool = BlockPool(layout.num_slots)
        self._tree = tree
        self._nodes: dict[int, PrefixNode] = {}  # by slot, of snapshots
        self._num_extra = 0  # slots saved to, beyond one a sample

    # ---- a step's plan ----

    def has_room(self, num_extra: int) -> bool:
        """Whether a step may save to that many slots more than one a sample."""
        return self._num_extra + num_extra <= self.layout.num_slots - self.layout.num_promised

    def plan(self, held: HeldStates, start: int, needed: Sequence[int], wanted: Iterable[int] = ()) -> ChunkStates:
        """Slots for a chunk that begins at position `start`: for the states after `needed` tokens, for which there must
        be room, and for snapshots after `wanted` tokens while there is room."""
        self._drop_saves(held)
        kept = dict.fromkeys(wanted)
        saves = [StateSave(position, self._allocate(), position in kept) for position in needed]
        self._num_extra += len(needed) - 1
        for position in kept:
            if position not in needed and self.has_room(1):
                saves.append(StateSave(position, self._allocate(), True))
                self._num_extra += 1
        held.saves = tuple(saves)
        return ChunkStates(held.current, tuple((save.position - start - 1, save.slot) for save in saves))

    def _allocate(self) -> int:
        if not self.pool.num_free:
            self._evict()
        return self.pool.allocate()

    def _evict(self) -> None:
        """All snapshots have one size: the least worth is the one that saves least computing."""
        slots = self.pool.least_recent(NUM_COMPARED)
        node = min((self._nodes[slot] for slot in slots), key=num_saved_blocks)
        self.forget(node)
        self._tree.prune(node)

    def forget(self, node: PrefixNode) -> None:
        """The snapshot of a node, unless a sample is about to go on from it."""
        if self.pool.is_cached(node.state):
            slot, node.state = node.state, NO_BLOCK
            del self._nodes[slot]
            self.pool.leave_tree(slot)

    # ---- after a step ----

    def offer(self, held: HeldStates, node: PrefixNode, position: int) -> None:
        """The node's tokens end at `position`: a state that was saved there becomes its snapshot."""
        save = next((save for save in held.saves if save.position == position), None)
        if save is None:
            return
        is_new, was_kept = node.state == NO_BLOCK, node.state != NO_BLOCK and not node.is_tail
        if is_new:
            node.state = save.slot
            self._nodes[save.slot] = node
            self.pool.enter_tree(save.slot)
        node.is_tail = (is_new or node.is_tail) and not save.keeps
        self._move_tail(held, node if is_new and not save.keeps else None)
        if save.keeps and not was_kept:
            self._on_snapshot(node)

    def _move_tail(self, held: HeldStates, node: PrefixNode | None) -> None:
        """A tail that another sample holds, or has asked for, stays."""
        tail, held.tail = held.tail, node
        if tail is not None and tail.is_tail:
            self.forget(tail)
            self._tree.prune(tail)

    def commit(self, held: HeldStates, num_computed: int) -> None:
        """The state after that many tokens is the current one from now on."""
        slot = next(save.slot for save in held.saves if save.position == num_computed)
        self.pool.hold(slot)
        self._replace_current(held, slot)
        self._drop_saves(held)

    def adopt(self, held: HeldStates, node: PrefixNode) -> None:
        """Go on from a snapshot."""
        self._keep_tail(node)
        self.pool.hold(node.state)
        self._replace_current(held, node.state)

    def fork(self, held: HeldStates) -> HeldStates:
        other = HeldStates()
        if held.current != NO_BLOCK:
            self.pool.hold(held.current)
            other.current = held.current
        return other

    def release(self, held: HeldStates) -> None:
        """Snapshots stay in the tree."""
        self._drop_saves(held)
        self._replace_current(held, NO_BLOCK)
        if held.tail is not None and held.tail.state != NO_BLOCK:
            self._keep_tail(held.tail)
        held.tail = None

    def _keep_tail(self, node: PrefixNode) -> None:
        """A tail stays once it serves another sample, or its own has left."""
        if node.is_tail:
            node.is_tail = False
            self._on_snapshot(node)

    def _replace_current(self, held: HeldStates, slot: int) -> None:
        if held.current != NO_BLOCK:
            self.pool.release(held.current)
        held.current = slot

    def _drop_saves(self, held: HeldStates) -> None:
        for save in held.saves:
            self.pool.release(save.slot)
        self._num_extra -= max(0, len(held.saves) - 1)
        held.saves = ()

    # ---- checks ----

    def audit(self, holdings: Iterable[HeldStates], nodes: Iterable[PrefixNode]) -> None:
        """Recount everything. For tests."""
        holdings = list(holdings)
        slots = Counter(save.slot for held in holdings for save in held.saves)
        assert not slots or max(slots.values()) == 1, "two rows save to one slot"
        slots.update(held.current for held in holdings if held.current != NO_BLOCK)
        in_tree = {node.state: node for node in nodes if node.state != NO_BLOCK}
        assert in_tree == self._nodes
        self.pool.audit(dict(slots), set(in_tree))
        assert self._num_extra == sum(max(0, len(held.saves) - 1) for held in holdings)
        assert self.has_room(0)


def num_saved_blocks(node: PrefixNode) -> int:
    """Blocks that would have to be computed without the node's snapshot: those since the one before it."""
    count, above = 1, node.parent
    while above is not None and above.parent is not None and above.state == NO_BLOCK:
        count, above = count + 1, above.parent
    return count


def snapshot_positions(
    layout: StateLayout, block_size: int, num_tokens: int, branches: Iterable[int], chunk: range
) -> Iterator[int]:
    """Where snapshots of a prompt of `num_tokens` tokens are worth their bytes, of the positions in `chunk`: at
    branches, near its end, and along it. The most valuable come first."""
    last = (num_tokens - 1) // block_size * block_size
    before = last - layout.tail_tokens // block_size * block_size
    along = range(chunk.start // layout.stride * layout.stride, chunk.stop, layout.stride)
    for position in (*branches, last, before, *along):
        if position in chunk and position and position % block_size == 0:
            yield position
