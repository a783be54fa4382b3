"""Reads chains of blocks, from the disk or from another server, in threads ahead of the engine that takes them."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from surefoot.cache.peer_blocks import PeerFetch
from surefoot.disk_cache import PUBLIC_ID, BlockHasher, BlockStore
from surefoot.kv import BlockKey

MAX_EXPECTED = 64  # chains of waiting requests
NUM_FETCHERS = 4  # chains that are fetched from other servers at once
LOG = logging.getLogger(__name__)
AHEAD_BYTES = 16 << 20  # read, and not taken yet: so much is copied into memory between two steps at most


class BlockSource(Protocol):
    """Where blocks are."""

    def contains(self, digest: bytes) -> bool: ...
    def read(self, digest: bytes) -> bytes | None:
        """The block's payload; None if it is not there or not whole."""


@dataclass(frozen=True)
class BlockChain:
    """The blocks that a request lacks: where they begin, and what follows."""

    keys: Sequence[BlockKey]  # of all blocks, from the first on
    num_cached: int  # of them that memory has
    parent: bytes  # the digest of the last of these
    is_public: bool  # whether that one is public
    namespace: bytes
    num_state_parts: int = 0  # of the state after a block, which a path must end with; 0: the model has none


class Link(NamedTuple):
    """A block of a chain that the store has."""

    digest: bytes
    is_public: bool


@dataclass
class ReadBlock:
    """A block that was read."""

    index: int  # among the chain's keys
    is_public: bool
    payload: bytes
    state: bytes = b""  # after it, if it is the last of a path
    is_fetched: bool = False  # from another server


@dataclass(eq=False)
class ChainRead:
    """One chain being read."""

    chain: BlockChain
    namespace: str
    fetch: PeerFetch | None = None  # None: from the disk
    blocks: deque[ReadBlock] = field(default_factory=deque)  # read, and not taken yet
    taken: list[ReadBlock] = field(default_factory=list)  # that cannot enter the tree before the state after them
    is_read: bool = False  # no more blocks will come
    is_cancelled: bool = False
    is_done: bool = False  # all that came is in the tree

    def cancel(self) -> None:
        self.is_cancelled = True


class BlockReader:
    """Reads chains up to the first block that is missing: from the disk one after the other, in one thread; from other
    servers a few at once, each in a thread, so that no chain of the disk waits for a slow server."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store
        self._waiting: deque[tuple[ChainRead, BlockHasher]] = deque()
        self._to_fetch: deque[tuple[ChainRead, BlockHasher]] = deque()
        self._expected: deque[tuple[BlockChain, BlockHasher]] = deque(maxlen=MAX_EXPECTED)
        self._num_bytes = 0  # read, and not taken yet
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._run, name="surefoot-cache-reader", daemon=True)]
        self._threads[0].start()

    def start(self, read: ChainRead, hasher: BlockHasher) -> None:
        if read.fetch is not None:
            self._start_fetchers()
        with self._changed:
            (self._waiting if read.fetch is None else self._to_fetch).append((read, hasher))
            self._changed.notify_all()

    def _start_fetchers(self) -> None:
        while len(self._threads) <= NUM_FETCHERS:
            self._threads.append(threading.Thread(target=self._fetch_all, name="surefoot-cache-fetcher", daemon=True))
            self._threads[-1].start()

    def expect(self, chain: BlockChain, hasher: BlockHasher) -> None:
        """Let the kernel read the chain's blocks ahead, when nothing else is to be read."""
        with self._changed:
            self._expected.append((chain, hasher))
            self._changed.notify_all()

    def take(self, read: ChainRead) -> list[ReadBlock]:
        """The blocks that have come since."""
        with self._changed:
            blocks = list(read.blocks)
            read.blocks.clear()
            self._num_bytes -= sum(len(block.payload) + len(block.state) for block in blocks)
            self._changed.notify_all()
        return blocks

    def drop(self, read: ChainRead) -> None:
        """Nobody takes its blocks any more."""
        read.cancel()
        self.take(read)  # none is added after it was cancelled

    def wait(self, reads: Sequence[ChainRead], seconds: float) -> None:
        """Until one of them has something to take."""
        with self._changed:
            self._changed.wait_for(lambda: any(read.blocks or read.is_read for read in reads), seconds)

    def close(self, seconds: float) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _fetch_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._to_fetch or self._is_closed)
                if self._is_closed:
                    return
                wanted = self._to_fetch.popleft()
            try:
                self._read_all(*wanted)
            except Exception:  # the requests that wait for later reads must not wait for ever
                LOG.exception("blocks could not be fetched")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._expected or self._is_closed)
                if self._is_closed:
                    return
                wanted = self._waiting.popleft() if self._waiting else None
                expected = self._expected.popleft() if wanted is None else None
            try:
                if wanted is not None:
                    self._read_all(*wanted)
                if expected is not None:
                    chain, hasher = expected
                    self._expect(chain, hasher)
            except Exception:  # the requests that wait for later reads must not wait for ever
                LOG.exception("blocks could not be read")

    def _expect(self, chain: BlockChain, hasher: BlockHasher) -> None:
        path = find_path(self._store, hasher, chain)
        self._store.will_need(link.digest for link in path)
        if path:
            self._store.will_need(state_digests(hasher, path[-1].digest, chain.num_state_parts))

    def _read_all(self, read: ChainRead, hasher: BlockHasher) -> None:
        try:
            self._read(read, hasher)
        finally:
            with self._changed:
                read.is_read = True
                self._changed.notify_all()

    def _read(self, read: ChainRead, hasher: BlockHasher) -> None:
        if read.fetch is None:
            self._read_from(self._store, read, hasher)
            return
        try:
            if not read.is_cancelled:
                read.fetch.open()
                self._read_from(read.fetch, read, hasher)
        finally:
            read.fetch.close()

    def _read_from(self, source: BlockSource, read: ChainRead, hasher: BlockHasher) -> None:
        path, state = _with_state(source, find_path(source, hasher, read.chain), hasher, read.chain)
        for index, link in enumerate(path, read.chain.num_cached):
            is_fetched = read.fetch is not None and read.fetch.is_due(link.digest)
            payload = source.read(link.digest) if self._has_room(read) else None
            if payload is None:
                return
            block = ReadBlock(index, link.is_public, payload, state if link is path[-1] else b"", is_fetched)
            with self._changed:
                if read.is_cancelled:
                    return
                read.blocks.append(block)
                self._num_bytes += len(block.payload) + len(block.state)
                self._changed.notify_all()

    def _has_room(self, read: ChainRead) -> bool:
        """Waits for room; False if the blocks are no longer wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_bytes < AHEAD_BYTES or read.is_cancelled or self._is_closed)
            return not (read.is_cancelled or self._is_closed)


def _with_state(
    source: BlockSource, path: list[Link], hasher: BlockHasher, chain: BlockChain
) -> tuple[list[Link], bytes]:
    """The path as far as a state after it can be read, and that state."""
    while path and chain.num_state_parts:
        parts = [source.read(digest) for digest in state_digests(hasher, path[-1].digest, chain.num_state_parts)]
        if None not in parts:
            return path, b"".join(part for part in parts if part is not None)
        path = up_to_state(source, hasher, path[:-1], chain.num_state_parts)
    return path, b""


def find_path(store: BlockSource, hasher: BlockHasher, chain: BlockChain) -> list[Link]:
    """The longest path of the store that spells the chain's keys; of equally long paths the most public one.

    As in the prefix tree, a path is public first, then private to one namespace, and the private part may branch off
    at any public block. If the model has states, a path ends where the store has one.
    """
    public = _walk(store, hasher, chain, [], PUBLIC_ID) if chain.is_public else []
    best = up_to_state(store, hasher, public, chain.num_state_parts)
    for depth in range(len(public), -1, -1):
        path = public[:depth] + _walk(store, hasher, chain, public[:depth], chain.namespace)
        if len(path) > max(len(best), depth):
            path = up_to_state(store, hasher, path, chain.num_state_parts)
            best = path if len(path) > len(best) else best
    return best


def up_to_state(store: BlockSource, hasher: BlockHasher, path: list[Link], num_parts: int) -> list[Link]:
    """The path up to the last block after which the store has the state."""
    while path and not all(store.contains(digest) for digest in state_digests(hasher, path[-1].digest, num_parts)):
        path = path[:-1]
    return path


def state_digests(hasher: BlockHasher, block: bytes, num_parts: int) -> list[bytes]:
    return [hasher.state(block, part) for part in range(num_parts)]


def has_path(store: BlockSource, hasher: BlockHasher, chain: BlockChain) -> bool:
    """Whether the store has a block that follows the cached ones."""
    return any(store.contains(digest) for digest in next_digests(hasher, chain))


def next_digests(hasher: BlockHasher, chain: BlockChain) -> list[bytes]:
    """The names that the block after the cached ones may have."""
    namespaces = (PUBLIC_ID, chain.namespace) if chain.is_public else (chain.namespace,)
    return [hasher.child(chain.parent, namespace, chain.keys[chain.num_cached]) for namespace in namespaces]


def _walk(
    store: BlockSource, hasher: BlockHasher, chain: BlockChain, before: Sequence[Link], namespace: bytes
) -> list[Link]:
    """Blocks of one namespace after those before, as far as the store has them."""
    digest, path = before[-1].digest if before else chain.parent, list[Link]()
    for key in chain.keys[chain.num_cached + len(before) :]:
        digest = hasher.child(digest, namespace, key)
        if not store.contains(digest):
            break
        path.append(Link(digest, namespace == PUBLIC_ID))
    return path
