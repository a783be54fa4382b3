"""Where each block is: a SQLite table, which the segments can always rebuild."""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from surefoot.disk_cache.record import NO_PARENT, PUBLIC_ID, BlockName, RecordHeader

NAME = "index.sqlite"
VERSION = 1
TICK = "tick"  # the name of the fact that holds the store's counter
INDEX_ERRORS = (sqlite3.Error, ValueError)  # ValueError: SQLite does not notice every flipped bit
_TABLES = """
CREATE TABLE IF NOT EXISTS blocks (
    digest BLOB PRIMARY KEY, parent BLOB, model BLOB, namespace BLOB, cost_us INTEGER,
    segment INTEGER, offset INTEGER, length INTEGER,  -- of the record
    num_uses INTEGER, last_use INTEGER  -- by the store's counter, never by a clock
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS blocks_segment ON blocks (segment);
CREATE TABLE IF NOT EXISTS segments (number INTEGER PRIMARY KEY, indexed_bytes INTEGER);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT);
"""
# Seconds to compute a block again, times its chance of reuse: uses count for it, other blocks' uses since then against
# it. A block without its parent can never be used.
_WORTH = f"""
CASE WHEN b.parent = x'{NO_PARENT.hex()}' OR EXISTS (SELECT 1 FROM blocks p WHERE p.digest = b.parent)
THEN b.cost_us * (1.0 + b.num_uses) / (1.0 + (? - b.last_use) / ?) ELSE 0.0 END
"""


class Place(NamedTuple):
    """Where a record lies."""

    segment: int
    offset: int
    length: int


class IndexedBlock(NamedTuple):
    digest: bytes
    parent: bytes
    place: Place
    worth: float


class Holdings(NamedTuple):
    """What one namespace has of one model."""

    model: bytes
    namespace: bytes
    num_blocks: int
    num_bytes: int

    @property
    def owner(self) -> str:
        """Whose it is, as far as the disk tells: the beginning of a user's hash, or public."""
        return "public" if self.namespace == PUBLIC_ID else self.namespace.hex()[:8]


class BlockIndex:
    """Safe for threads: one connection writes and one reads, which under WAL do not wait for each other.

    Raises sqlite3.Error where the disk fails.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        self._writer = _connect(path)
        try:
            self._writer.executescript(_TABLES)
            if self.fact("version", str(VERSION)) != str(VERSION):
                raise sqlite3.DatabaseError("another version's index")
            self.set_fact("version", str(VERSION))
            self._reader = _connect(path)
        except BaseException:
            self._writer.close()
            raise
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    # ---- blocks ----

    def find(self, digest: bytes) -> Place | None:
        query = "SELECT segment, offset, length FROM blocks WHERE digest = ?"
        with self._read_lock:
            row = self._reader.execute(query, (digest,)).fetchone()
        return None if row is None else _to_place(row)

    def namespace_of(self, digest: bytes) -> bytes | None:
        with self._read_lock:
            row = self._reader.execute("SELECT namespace FROM blocks WHERE digest = ?", (digest,)).fetchone()
        if row is not None and not isinstance(row[0], bytes):
            raise ValueError("a damaged row")
        return None if row is None else row[0]

    def add(self, records: Iterable[tuple[BlockName, Place]], tick: int) -> None:
        """Blocks that are known already keep their place."""
        rows = [
            (name.digest, name.parent, name.model, name.namespace, name.cost_us, *place, 0, tick)
            for name, place in records
        ]
        with self.changing() as cursor:
            cursor.executemany("INSERT OR IGNORE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def note_uses(self, uses: Sequence[tuple[int, bytes]]) -> None:
        """uses: (counter, digest)."""
        with self.changing() as cursor:
            query = "UPDATE blocks SET num_uses = num_uses + 1, last_use = ? WHERE digest = ?"
            cursor.executemany(query, uses)

    def remove(self, digests: Iterable[bytes]) -> None:
        with self.changing() as cursor:
            cursor.executemany("DELETE FROM blocks WHERE digest = ?", [(digest,) for digest in digests])

    def move(self, places: Iterable[tuple[bytes, Place]]) -> None:
        rows = [(*place, digest) for digest, place in places]
        with self.changing() as cursor:
            cursor.executemany("UPDATE blocks SET segment = ?, offset = ?, length = ? WHERE digest = ?", rows)

    # ---- segments ----

    def indexed_bytes(self) -> dict[int, int]:
        """Of each segment, how far its records are in the index."""
        return dict(self._writer.execute("SELECT number, indexed_bytes FROM segments"))

    def set_indexed(self, number: int, indexed_bytes: int) -> None:
        with self.changing() as cursor:
            cursor.execute("INSERT OR REPLACE INTO segments VALUES (?, ?)", (number, indexed_bytes))

    def drop_segment(self, number: int) -> None:
        with self.changing() as cursor:
            cursor.execute("DELETE FROM blocks WHERE segment = ?", (number,))
            cursor.execute("DELETE FROM segments WHERE number = ?", (number,))

    def drop_beyond(self, number: int, num_bytes: int) -> None:
        """Forget records that the file has lost."""
        with self.changing() as cursor:
            cursor.execute("DELETE FROM blocks WHERE segment = ? AND offset + length > ?", (number, num_bytes))

    def least_worthy(self, tick: int, num_blocks: float) -> int | None:
        """The segment whose blocks are worth least; one without blocks is worth nothing."""
        query = f"""
            SELECT s.number, COALESCE(SUM({_WORTH}), 0.0) / MAX(s.indexed_bytes, 1) AS worth
            FROM segments s LEFT JOIN blocks b ON b.segment = s.number
            GROUP BY s.number ORDER BY worth, s.number LIMIT 1
        """
        row = self._writer.execute(query, (tick, num_blocks)).fetchone()
        return None if row is None else int(row[0])

    def blocks_of(self, segment: int, tick: int, num_blocks: float) -> list[IndexedBlock]:
        query = f"SELECT digest, parent, offset, length, {_WORTH} FROM blocks b WHERE segment = ? ORDER BY offset"
        rows = self._writer.execute(query, (tick, num_blocks, segment))
        return [
            IndexedBlock(digest, parent, _to_place((segment, offset, length)), worth / length)
            for digest, parent, offset, length, worth in rows
        ]

    def mean_worth(self, tick: int, num_blocks: float) -> float:
        """Of a byte."""
        query = f"SELECT SUM({_WORTH}) / MAX(SUM(length), 1) FROM blocks b"
        return float(self._writer.execute(query, (tick, num_blocks)).fetchone()[0] or 0.0)

    # ---- namespaces ----

    def segments_with(self, namespace: bytes) -> list[int]:
        query = "SELECT DISTINCT segment FROM blocks WHERE namespace = ?"
        return [number for (number,) in self._writer.execute(query, (namespace,))]

    def digests_of(self, namespace: bytes) -> set[bytes]:
        query = "SELECT digest FROM blocks WHERE namespace = ?"
        return {digest for (digest,) in self._writer.execute(query, (namespace,))}

    def holdings(self) -> list[Holdings]:
        return read_holdings(self._writer)

    def num_blocks(self) -> int:
        return int(self._writer.execute("SELECT COUNT(*) FROM blocks").fetchone()[0])

    def compact(self) -> None:
        """Write the file anew: what was removed may be left between its rows."""
        with self._write_lock, self._read_lock:
            self._writer.execute("VACUUM")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # ---- facts ----

    def fact(self, name: str, default: str) -> str:
        row = self._writer.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return default if row is None else str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        self._writer.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Cursor]:
        """A transaction, or part of the one that is open."""
        with self._write_lock:
            if self._writer.in_transaction:
                yield self._writer.cursor()
                return
            self._writer.execute("BEGIN")
            try:
                yield self._writer.cursor()
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise


def read_holdings(connection: sqlite3.Connection) -> list[Holdings]:
    query = "SELECT model, namespace, COUNT(*), SUM(length) FROM blocks GROUP BY model, namespace"
    return [Holdings(*row) for row in connection.execute(query)]


def scanned(records: Iterable[tuple[int, RecordHeader]], segment: int) -> Iterator[tuple[BlockName, Place]]:
    """What a scan of a segment found, as the index wants it."""
    return ((header.name, Place(segment, offset, header.record_bytes)) for offset, header in records)


def _to_place(row: tuple[object, ...]) -> Place:
    """Raises ValueError if the row is damaged: SQLite does not notice a flipped bit inside it."""
    if not all(isinstance(value, int) and 0 <= value < 1 << 62 for value in row) or not row[-1]:
        raise ValueError("a damaged row")
    return Place(*row)  # type: ignore[arg-type]


def remove_index(folder: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (folder / f"{NAME}{suffix}").unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection
