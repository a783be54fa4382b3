"""The store: blocks by name on disk, within a budget. What cannot be read, or is not what was written, is a miss."""

import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from surefoot.disk_cache.cipher import BlockCipher
from surefoot.disk_cache.index import INDEX_ERRORS, TICK, Holdings, IndexedBlock, Place, remove_index
from surefoot.disk_cache.record import (
    HEADER_BYTES,
    BlockName,
    DamagedRecord,
    RecordHeader,
    make_header,
    read_header,
)
from surefoot.disk_cache.recovery import open_index
from surefoot.disk_cache.segments import LOCK, SegmentFiles, lock_folder
from surefoot.machine.own_folder import private_folder

SEGMENT_BYTES = 64 << 20
LEAST_SEGMENTS = 8  # that a budget is divided into, so that evicting one loses little
MAX_UNINDEXED = 1024  # blocks and uses that wait for the index, which may not be writable
BATCH_BLOCKS = 64  # after which what was written and used goes to the index


class CacheInUse(OSError):
    """Another process uses the folder."""


@dataclass
class StoreCounters:
    """Since the store was opened."""

    num_hits: int = 0
    num_writes: int = 0
    num_evicted: int = 0
    num_damaged: int = 0  # blocks whose bytes were not those that were written
    num_read_errors: int = 0
    num_write_errors: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@dataclass(frozen=True)
class VerifyReport:
    num_blocks: int
    num_damaged: int  # they are removed from the index


class BlockStore:
    """Blocks of one folder. One process at a time; safe for its threads."""

    def __init__(self, folder: Path, max_bytes: int, cipher: BlockCipher | None = None) -> None:
        """Raises OSError if the folder cannot be used, CacheInUse if another process uses it."""
        self.folder = private_folder(folder, LOCK)
        self.max_bytes = max_bytes
        self.segment_bytes = max(1, min(SEGMENT_BYTES, max_bytes // LEAST_SEGMENTS))
        self.counters = StoreCounters()
        self._cipher = cipher
        self._lock = threading.RLock()  # of everything that writes
        self._new: dict[bytes, tuple[BlockName, Place]] = {}  # by digest: written, not in the index yet
        self._used: list[tuple[int, bytes]] = []
        self._is_closed = False
        self._is_damaged = False  # the index: the next opening makes it anew
        try:
            self._lock_file = lock_folder(self.folder)
        except BlockingIOError as owner:
            raise CacheInUse(f"process {owner} uses the cache in {folder}: stop it first") from None
        try:
            self._files = SegmentFiles(self.folder)
            opened = open_index(self._files, self.folder)
        except BaseException as error:
            os.close(self._lock_file)
            if isinstance(error, INDEX_ERRORS):
                raise OSError(f"{folder}: {error}") from None
            raise
        self._index, self._tick, self._num_blocks = opened.index, opened.tick, opened.num_blocks
        self.counters.num_read_errors = opened.num_failed

    def close(self) -> None:
        """A second time does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self.flush()
                self._files.close()
                self._index.close()
                if self._is_damaged:
                    remove_index(self.folder)
            finally:
                os.close(self._lock_file)

    # ---- blocks ----

    def contains(self, digest: bytes) -> bool:
        return self._find(digest) is not None

    def _find(self, digest: bytes) -> Place | None:
        if (new := self._new.get(digest)) is not None:
            return new[1]
        try:
            return self._index.find(digest)
        except INDEX_ERRORS:
            self.counters.num_read_errors += 1
            return None

    def read(self, digest: bytes) -> bytes | None:
        """The block's payload; None if it is not there or not whole."""
        block = self._read_whole(digest)
        if block is None:
            return None
        with self._lock:
            self.counters.num_hits += 1
            self.counters.read_bytes += len(block[1])
        return bytes(block[1])

    def owned_record(self, digest: bytes, owners: Collection[bytes]) -> bytes | None:
        """The block with its header, not encrypted, for another server; None if it is not there, not whole, or not in
        one of these namespaces."""
        block = self._read_whole(digest) if self.owner(digest) in owners else None
        if block is None or block[0].namespace not in owners:
            return None
        return b"".join((make_header(*block).pack(), block[1]))

    def _read_whole(self, digest: bytes) -> tuple[BlockName, bytes | memoryview] | None:
        place = self._find(digest)
        if place is None:
            return None
        try:
            block = self._checked(digest, self._files.read(*place))
        except DamagedRecord:
            self.counters.num_damaged += 1
            self._remove(digest)
            return None
        except OSError:
            self.counters.num_read_errors += 1
            return None
        self._note_use(digest)
        return block

    def _checked(self, digest: bytes, record: bytes) -> tuple[BlockName, bytes | memoryview]:
        """A record's name and payload. Raises DamagedRecord if it is not this block's, as it was written."""
        data = memoryview(record)
        header, payload = read_header(data), data[HEADER_BYTES:]
        if header.name.digest != digest:
            raise DamagedRecord("another block's record")
        header.check(payload)
        if self._cipher is None:
            return header.name, payload
        return header.name, self._cipher.decrypt(header.name, header.nonce, payload)

    def owner(self, digest: bytes) -> bytes | None:
        """The namespace of a block; None if it is not there."""
        if (new := self._new.get(digest)) is not None:
            return new[0].namespace
        try:
            return self._index.namespace_of(digest)
        except INDEX_ERRORS:
            self.counters.num_read_errors += 1
            return None

    def will_need(self, digests: Iterable[bytes]) -> None:
        """Lets the kernel read these blocks ahead."""
        for digest in digests:
            if (place := self._find(digest)) is not None:
                self._files.will_need(*place)

    def _note_use(self, digest: bytes) -> None:
        with self._lock:
            self._tick += 1
            self._used.append((self._tick, digest))
            if len(self._used) >= MAX_UNINDEXED:
                self.flush()

    def _remove(self, digest: bytes) -> None:
        with self._lock, suppress(*INDEX_ERRORS):
            self._new.pop(digest, None)
            self._index.remove([digest])

    def write(self, name: BlockName, payload: bytes | memoryview) -> bool:
        """Whether the block is in the store now. Raises OSError if the disk fails."""
        with self._lock:
            if self.contains(name.digest):
                return True
            header, stored = self._record(name, payload)
            if header.record_bytes > self.segment_bytes:
                return False
            with self._changing():
                self._append(name, header.pack(), stored)
            self.counters.num_writes += 1
            self.counters.written_bytes += header.record_bytes
            return True

    def _record(self, name: BlockName, payload: bytes | memoryview) -> tuple[RecordHeader, bytes | memoryview]:
        """The header, and the bytes that follow it."""
        if self._cipher is None:
            return make_header(name, payload), payload
        nonce, encrypted = self._cipher.encrypt(name, payload)
        return make_header(name, encrypted, nonce), encrypted

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """For one thread at a time. Every failure of the disk is an OSError, and is counted."""
        with self._lock:
            try:
                yield
            except (OSError, *INDEX_ERRORS) as error:
                self.counters.num_write_errors += 1
                self._is_damaged |= not isinstance(error, OSError | sqlite3.OperationalError)
                raise OSError(f"the cache in {self.folder} cannot be changed: {error}") from error

    def _append(self, name: BlockName, header: bytes, payload: bytes | memoryview) -> None:
        number = self._segment_for(len(header) + len(payload))
        offset = self._files.append(number, header, payload)
        self._new[name.digest] = name, Place(number, offset, len(header) + len(payload))
        self._tick += 1
        if len(self._new) >= BATCH_BLOCKS:
            self.flush()

    def _segment_for(self, num_bytes: int) -> int:
        """The open segment for a record of this size: the newest, or a new one. The budget has room for all of it."""
        newest = self._files.last
        rest = self.segment_bytes - self._files.sizes.get(newest, 0)
        is_full = not self._files.has_room(newest, num_bytes, self.segment_bytes)
        if is_full or self._files.total_bytes + rest > self.max_bytes:
            self.flush()
            self._evict(self.max_bytes - self.segment_bytes)
        return self._files.open_for(num_bytes, self.segment_bytes)

    def flush(self) -> None:
        """Tell the index of what was written and used. If it cannot be told now, a later opening finds the blocks."""
        with self._lock:
            new, used, self._used = list(self._new.values()), self._used, []
            try:
                with self._index.changing():
                    self._index.add(new, self._tick)
                    self._index.note_uses(used)
                    for number in {place.segment for _, place in new}:
                        self._index.set_indexed(number, self._files.sizes[number])
                    self._index.set_fact(TICK, str(self._tick))
                self._num_blocks += len(new)
            except INDEX_ERRORS:
                self.counters.num_write_errors += 1
                if len(new) < MAX_UNINDEXED:
                    return  # the next time may do better
            self._new = {}

    # ---- eviction ----

    def prune(self, max_bytes: int) -> None:
        """Evict until the segments take at most this."""
        with self._changing():
            self.flush()
            self._evict(max_bytes)

    def _evict(self, max_bytes: int) -> None:
        """Remove the segments worth least. The best blocks of each, at most half of its bytes, are written again."""
        while self._files.total_bytes > max_bytes:
            victim = self._victim()
            if victim is None:
                return
            if victim not in self._files.sizes:
                self._index.drop_segment(victim)  # the index could not be told when the file went
                continue
            blocks = self._index.blocks_of(victim, self._tick, self._scale)
            room = min(max_bytes // 2, self._files.sizes[victim] // 2)
            self._rewrite(victim, best_blocks(blocks, self._index.mean_worth(self._tick, self._scale), room))

    @property
    def _scale(self) -> float:
        return float(max(self._num_blocks, 1))

    def _victim(self) -> int | None:
        return self._index.least_worthy(self._tick, self._scale) or min(self._files.sizes, default=None)

    def _rewrite(self, victim: int, kept: Collection[IndexedBlock]) -> None:
        """Replace a segment by its kept blocks in another one.

        The old file goes before the index is told: if the process is killed in between, the next opening finds that
        the file is gone, and never blocks that were to be forgotten. If the old file cannot go, the copies go, so that
        a folder in which nothing can be removed does not grow.
        """
        sizes = dict(self._files.sizes)
        places = self._copied(victim, kept)
        try:
            self._files.sync()
            self._files.remove(victim)
        except OSError:
            for number in {place.segment for _, place in places}:
                self._files.cut(number, sizes.get(number, 0))
            raise
        num_before = self._index.num_blocks()
        with self._index.changing():
            self._index.move(places)
            self._index.drop_segment(victim)
            for number in {place.segment for _, place in places}:
                self._index.set_indexed(number, self._files.sizes[number])
        self._num_blocks = self._index.num_blocks()
        self.counters.num_evicted += num_before - self._num_blocks

    def _copied(self, victim: int, kept: Collection[IndexedBlock]) -> list[tuple[bytes, Place]]:
        """Copies of intact blocks in another segment. A full disk takes fewer of them, and has room afterwards."""
        places = list[tuple[bytes, Place]]()
        for block in kept:
            if (record := self._intact(block)) is None:
                continue
            try:
                number = self._files.open_for(len(record), self.segment_bytes, spared=victim)
                offset = self._files.append(number, record, b"")
            except OSError:
                self.counters.num_write_errors += 1
                break
            places.append((block.digest, Place(number, offset, len(record))))
        return places

    def _intact(self, block: IndexedBlock) -> bytes | None:
        try:
            record = self._files.read(*block.place)
            header = read_header(record)
            header.check(memoryview(record)[HEADER_BYTES:])
        except (OSError, DamagedRecord):
            self.counters.num_damaged += 1
            return None
        return record

    # ---- users ----

    def forget(self, namespace: bytes) -> int:
        """Remove a namespace's blocks: their segments are written anew without them. Returns how many there were."""
        with self._changing():
            self.flush()
            forgotten = self._index.digests_of(namespace)
            for segment in self._index.segments_with(namespace):
                blocks = self._index.blocks_of(segment, self._tick, self._scale)
                self._rewrite(segment, [block for block in blocks if block.digest not in forgotten])
            self._index.compact()
            return len(forgotten)

    # ---- looking ----

    @property
    def is_encrypted(self) -> bool:
        return self._cipher is not None

    @property
    def total_bytes(self) -> int:
        return self._files.total_bytes

    def holdings(self) -> list[Holdings]:
        with self._changing():
            self.flush()
            return self._index.holdings()

    def fact(self, name: str) -> str | None:
        """A note that was left with `set_fact`; lost with the index."""
        with self._lock, suppress(*INDEX_ERRORS):
            return self._index.fact(name, "") or None
        return None

    def set_fact(self, name: str, value: str) -> None:
        with self._lock, suppress(*INDEX_ERRORS):
            self._index.set_fact(name, value)

    def verify(self) -> VerifyReport:
        """Read every block. Damaged ones are removed from the index."""
        with self._changing():
            self.flush()
            num_blocks = num_damaged = 0
            for segment in sorted(self._files.sizes):
                for block in self._index.blocks_of(segment, self._tick, self._scale):
                    num_blocks += 1
                    if self._intact(block) is None:
                        num_damaged += 1
                        self._index.remove([block.digest])
            return VerifyReport(num_blocks, num_damaged)


def best_blocks(blocks: list[IndexedBlock], least_worth: float, room: int) -> list[IndexedBlock]:
    """The blocks of a segment that are worth most, at most `room` bytes, in their order.

    A block is worth no less than a block after it, which needs it. Parents are written before children.
    """
    worth = {block.digest: block.worth for block in blocks}
    for block in reversed(blocks):
        if block.parent in worth:
            worth[block.parent] = max(worth[block.parent], worth[block.digest])
    kept: set[bytes] = set()
    for block in sorted(blocks, key=lambda block: (-worth[block.digest], block.place.offset)):
        lacks_parent = block.parent in worth and block.parent not in kept
        if worth[block.digest] > least_worth and block.place.length <= room and not lacks_parent:
            kept.add(block.digest)
            room -= block.place.length
    return [block for block in blocks if block.digest in kept]
