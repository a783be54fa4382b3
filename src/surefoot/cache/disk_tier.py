"""The tier below the prefix tree: full blocks go down to the disk, and come up for requests that lack them.

Blocks may also come up from another server of a fleet.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from surefoot.cache.block_reader import (
    BlockChain,
    BlockReader,
    ChainRead,
    ReadBlock,
    has_path,
    next_digests,
    state_digests,
)
from surefoot.cache.block_writer import BlockWriter
from surefoot.cache.peer_blocks import BlockSizes, PeerBlocks, PeerClient, PeerFetch, PeerOffer
from surefoot.core import MEMORY_ONLY, NO_BLOCK
from surefoot.disk_cache import NO_PARENT, PUBLIC_ID, BlockHasher, BlockName, BlockStore, asked_namespaces
from surefoot.kv import BlockKey, Holding, KvManager, PrefixNode, num_saved_blocks
from surefoot.runner import KvStore

COPY_BYTES = 16 << 20  # that are copied out of memory between two steps at most
PART_BYTES = 8 << 20  # of a state that are one record: a large model's is larger than a segment
BATCH_BLOCKS = 32  # installed at once: groups of windows have room for a window and a chunk
WAIT_S = 0.02
CLOSE_S = 10.0  # for what is left to be written


class StatePart(NamedTuple):
    """A part of a snapshot that is to be copied."""

    node: PrefixNode
    number: int


class DiskTier:
    """Used by the engine's thread, between steps: only then do blocks enter and leave the tree.

    A block in the tree never changes, so its copy is what was computed. A block that is read enters the tree as if it
    had been computed. Two threads do the rest.
    """

    def __init__(self, store: BlockStore, hasher: Callable[[], BlockHasher | None], bytes_: KvStore) -> None:
        """hasher: None until it is known what the model's blocks depend on."""
        self.store = store
        self._hasher = hasher
        self._bytes = bytes_
        self._moving = threading.Lock()  # held while blocks come to `_fresh`, and move from there to the writer
        self._writer, self._reader = BlockWriter(store, self._heed_requests), BlockReader(store)
        self._namespaces: dict[str | None, bytes] = {}
        self._kv: KvManager | None = None
        self._fresh: deque[PrefixNode | StatePart] = deque()  # not copied yet; parents come before children
        self._num_state_parts = -(-bytes_.state_bytes // PART_BYTES)
        self._reads: list[ChainRead] = []
        self._is_installing = False  # blocks that the disk has
        self.peers: PeerBlocks | None = None  # other servers that may hold blocks
        self.token_us: Callable[[], float] = lambda: 1.0  # to compute a token
        self.num_hit_tokens = 0
        self._copy_cpu_s = 0.0

    def on_shared(self, node: PrefixNode) -> None:
        if self._is_for_disk(node):
            with self._moving:
                self._fresh.append(node)

    def on_snapshot(self, node: PrefixNode) -> None:
        if self._is_for_disk(node):
            with self._moving:
                self._fresh.extend(StatePart(node, number) for number in range(self._num_state_parts))

    def _is_for_disk(self, node: PrefixNode) -> bool:
        return not self._is_installing and not (node.namespace or "").startswith(MEMORY_ONLY)

    def bind(self, kv: KvManager) -> None:
        """Another tree from now on."""
        self._kv = kv
        with self._moving:
            self._fresh.clear()
        for read in self._reads:
            self._reader.drop(read)
        self._reads.clear()

    def flush(self, seconds: float) -> bool:
        """Whether all that was copied has been written within the time, or given up."""
        return self._writer.flush(seconds)

    def close(self) -> None:
        """Write what is left, as far as the time allows."""
        end = time.monotonic() + CLOSE_S
        while self.has_backlog and not self._writer.is_paused and time.monotonic() < end:
            self.keep()
            self._writer.wait_for_room(WAIT_S)
        self._reader.close(CLOSE_S)
        self._writer.close(CLOSE_S)
        self.store.close()

    # ---- other servers ----

    def use_peers(self, client: PeerClient) -> PeerBlocks:
        """Blocks may come from other servers from now on."""
        whole, rest = divmod(self._bytes.state_bytes, PART_BYTES)
        parts = (PART_BYTES,) * whole + ((rest,) if rest else ())
        self.peers = PeerBlocks(client, BlockSizes(self._bytes.block_size, self._bytes.block_bytes, parts))
        return self.peers

    @property
    def hasher(self) -> BlockHasher | None:
        """None until it is known what the model's blocks depend on."""
        return self._hasher()

    @property
    def block_bytes(self) -> int:
        return self._bytes.block_bytes

    def state_digests(self, block: bytes) -> list[bytes]:
        """The names of the state's parts after a block; none if the model has no states."""
        hasher = self._hasher()
        return [] if hasher is None else state_digests(hasher, block, self._num_state_parts)

    def offer(self, url: str, num_held: int, prompt: Sequence[int], owner: str, num_public: int) -> PeerOffer | None:
        """From any thread: another server is said to hold the prompt's first `num_held` tokens. Withdraw it when the
        request ends."""
        hasher, digests = self._hasher(), self.digests(prompt, owner, num_public)
        if hasher is None or self.peers is None:
            return None
        num_blocks = min(num_held // self._bytes.block_size, len(digests))
        offer = PeerOffer(url, hasher.namespace(owner), tuple(digests), num_blocks)
        self.peers.offer(offer)
        return offer

    def digests(self, prompt: Sequence[int], owner: str, num_public: int) -> list[bytes]:
        """From any thread: the names of a prompt's full blocks without its last token, which is always computed."""
        hasher, size = self._hasher(), self._bytes.block_size
        if hasher is None:
            return []
        namespace, digest, digests = hasher.namespace(owner), hasher.root, []
        for end in range(size, len(prompt), size):
            digest = hasher.child(digest, PUBLIC_ID if end <= num_public else namespace, prompt[end - size : end])
            digests.append(digest)
        return digests

    # ---- down ----

    @property
    def has_backlog(self) -> bool:
        """Whether blocks of the tree wait to be copied."""
        return bool(self._fresh) and self._hasher() is not None

    @property
    def write_cpu_s(self) -> float:
        """Seconds of a processor that went into copying and writing blocks."""
        return self._copy_cpu_s + self._writer.cpu_s

    def keep(self) -> None:
        """Copy fresh blocks for the writer, a bounded number of bytes."""
        hasher = self._hasher()
        if hasher is not None and self._fresh:
            with self._moving:
                self._keep(hasher)

    def _keep(self, hasher: BlockHasher) -> None:
        if self._writer.is_paused:
            self._fresh.clear()
            return
        began, items = time.thread_time(), list(self._take_fresh(min(COPY_BYTES, self._writer.room)))
        nodes = [item for item in items if isinstance(item, PrefixNode)]
        if whole := [node for node in nodes if all(block != NO_BLOCK for block in node.blocks)]:
            self._offer(hasher, whole)
        for item in items:
            if isinstance(item, StatePart) and item.node.state != NO_BLOCK:
                self._offer_state(hasher, item)
        self._copy_cpu_s += time.thread_time() - began

    def _heed_requests(self) -> None:
        """On the writer's thread: forget what other processes ask to have forgotten, also where it waits to be written.
        Blocks in memory stay there until they are evicted, and do not reach the disk again."""
        hasher = self._hasher()
        if hasher is None:
            return
        for request, namespace in asked_namespaces(self.store.folder):
            with self._moving:
                self._fresh = deque(item for item in self._fresh if hasher.namespace(_owner(item)) != namespace)
                self._writer.drop(namespace)
            self.store.forget(namespace)
            request.unlink(missing_ok=True)

    def _take_fresh(self, num_bytes: int) -> Iterator[PrefixNode | StatePart]:
        """As many as have these bytes, and one if there is any room at all."""
        while self._fresh and num_bytes > 0:
            item = self._fresh.popleft()
            num_bytes -= self._bytes.block_bytes if isinstance(item, PrefixNode) else PART_BYTES
            yield item

    def _offer_state(self, hasher: BlockHasher, part: StatePart) -> None:
        """A state is worth the computing that it saves: since the snapshot before it."""
        block = self._digest(hasher, part.node)
        digest = hasher.state(block, part.number)
        if self.store.contains(digest):
            return
        start = part.number * PART_BYTES
        payload = self._bytes.read_state(part.node.state, start, start + PART_BYTES)
        tokens = num_saved_blocks(part.node) * self._block_size
        cost_us = int(tokens * self.token_us() / self._num_state_parts)
        namespace = self._namespace(hasher, part.node.namespace)
        self._writer.offer(BlockName(digest, block, hasher.model, namespace, cost_us), payload.data)

    def _offer(self, hasher: BlockHasher, nodes: Sequence[PrefixNode]) -> None:
        groups = zip(*(node.blocks for node in nodes), strict=True)
        rows = self._bytes.read_blocks(dict(zip(self._windows, groups, strict=True)))
        cost_us = int(self._block_size * self.token_us())
        for node, row in zip(nodes, rows, strict=True):
            self._writer.offer(self._name(hasher, node, cost_us), row.data)

    def _name(self, hasher: BlockHasher, node: PrefixNode, cost_us: int) -> BlockName:
        digest = self._digest(hasher, node)
        assert node.parent is not None
        parent = self._digest(hasher, node.parent) if node.parent.parent is not None else NO_PARENT
        return BlockName(digest, parent, hasher.model, self._namespace(hasher, node.namespace), cost_us)

    def _digest(self, hasher: BlockHasher, node: PrefixNode) -> bytes:
        path = []
        while not node.digest and node.parent is not None:
            path.append(node)
            node = node.parent
        digest = node.digest or hasher.root
        for below in reversed(path):
            digest = below.digest = hasher.child(digest, self._namespace(hasher, below.namespace), below.key)
        return digest

    def _namespace(self, hasher: BlockHasher, name: str | None) -> bytes:
        if name not in self._namespaces:
            self._namespaces[name] = hasher.namespace(name)
        return self._namespaces[name]

    # ---- up ----

    def start_read(self, holding: Holding, keys: Sequence[BlockKey], cached: Sequence[PrefixNode]) -> ChainRead | None:
        hasher = self._hasher()
        if hasher is None:
            return None
        parent = self._digest(hasher, cached[-1]) if cached else hasher.root
        is_public = not cached or cached[-1].namespace is None
        namespace = self._namespace(hasher, holding.namespace)
        chain = BlockChain(tuple(keys), len(cached), parent, is_public, namespace, self._num_state_parts)
        fetch = self._fetch(hasher, chain) if self.peers is not None else None
        if fetch is None and not has_path(self.store, hasher, chain):
            return None
        read = ChainRead(chain, holding.namespace, fetch)
        self._reads.append(read)
        self._reader.start(read, hasher)
        return read

    def _fetch(self, hasher: BlockHasher, chain: BlockChain) -> PeerFetch | None:
        """What another server has of the chain, if fetching it is predicted to be quicker than computing it."""
        assert self.peers is not None
        offer = self.peers.find(chain.namespace, chain.num_cached, next_digests(hasher, chain))
        if offer is None:
            return None
        token_s, num_missing = self.token_us() / 1e6, offer.num_blocks - chain.num_cached
        if self.peers.patience_s(offer.url, num_missing, token_s) is None:
            return None
        return PeerFetch(self.peers, self.store, hasher, offer, chain.num_cached, token_s)

    def expect(self, holding: Holding, keys: Sequence[BlockKey]) -> None:
        """The kernel reads the blocks into its own memory while the request waits."""
        hasher = self._hasher()
        if hasher is None:
            return
        namespace = self._namespace(hasher, holding.namespace)
        chain = BlockChain(tuple(keys), 0, hasher.root, True, namespace, self._num_state_parts)
        if has_path(self.store, hasher, chain):
            self._reader.expect(chain, hasher)

    @property
    def is_reading(self) -> bool:
        return bool(self._reads)

    def wait(self) -> None:
        """A moment, for something to come up or to have gone down."""
        if self._reads:
            self._reader.wait(self._reads, WAIT_S)
        else:
            self._writer.wait_for_room(WAIT_S)

    def install(self) -> None:
        """Put the blocks that have come into the tree."""
        for read in list(self._reads):
            is_read = read.is_read  # before the blocks are taken: none comes after
            for blocks in self._batches(read, self._reader.take(read)):
                if not read.is_cancelled:
                    self._install(read, blocks)
            if read.is_cancelled:
                self._reader.drop(read)
            if is_read or read.is_cancelled:
                read.is_done = True
                self._reads.remove(read)

    def _batches(self, read: ChainRead, blocks: list[ReadBlock]) -> list[list[ReadBlock]]:
        """What can enter the tree together. Blocks before a state enter with it."""
        if not self._num_state_parts:
            return [blocks[first : first + BATCH_BLOCKS] for first in range(0, len(blocks), BATCH_BLOCKS)]
        read.taken += blocks
        if not read.taken or not read.taken[-1].state:
            return []
        whole, read.taken = read.taken, []
        return [whole]

    def _install(self, read: ChainRead, blocks: list[ReadBlock]) -> None:
        """A short-lived holding computes them, as it were, and leaves them cached."""
        assert self._kv is not None
        holding = self._kv.open(read.namespace, num_public(blocks) * self._block_size)
        self._is_installing = not any(block.is_fetched for block in blocks)
        try:
            if not self._fill(self._kv, holding, read.chain.keys[: blocks[-1].index + 1], blocks):
                read.cancel()
        finally:
            self._is_installing = False
            self._kv.close(holding)

    def _fill(self, kv: KvManager, holding: Holding, keys: Sequence[BlockKey], blocks: list[ReadBlock]) -> bool:
        """Whether the tree has the blocks now. It has not if blocks before them are gone, or if there is no room."""
        size = self._block_size
        first, end = kv.adopt(holding, keys) // size, len(keys)
        missing = [block for block in blocks if block.index >= first]
        if not missing:
            return True
        if missing[0].index != first or not _has_slot(kv) or kv.extend(holding, end * size) is None:
            return False
        groups = (table[first:end] for table in holding.tables)
        self._bytes.write_blocks(dict(zip(self._windows, groups, strict=True)), [block.payload for block in missing])
        if kv.states is not None:
            ((_, slot),) = kv.states.plan(holding.states, first * size, (end * size,), (end * size,)).saves
            self._bytes.write_state(slot, missing[-1].state)
        kv.commit(holding, end * size, keys)
        num_fetched = sum(block.is_fetched for block in missing)
        self.num_hit_tokens += (len(missing) - num_fetched) * size
        if self.peers is not None:
            self.peers.counters.num_fetched_tokens += num_fetched * size
        return True

    @property
    def _windows(self) -> list[int]:
        assert self._kv is not None
        return [group.window for group in self._kv.layout.groups]

    @property
    def _block_size(self) -> int:
        assert self._kv is not None
        return self._kv.layout.block_size


def _has_slot(kv: KvManager) -> bool:
    """Whether a state can be saved."""
    return kv.states is None or kv.states.pool.num_available > 0


def num_public(blocks: Sequence[ReadBlock]) -> int:
    """Blocks from the first of the path on that are public, if these go on from public ones."""
    count = next((number for number, block in enumerate(blocks) if not block.is_public), len(blocks))
    return blocks[0].index + count if count else 0


def _owner(item: PrefixNode | StatePart) -> str | None:
    return (item if isinstance(item, PrefixNode) else item.node).namespace
