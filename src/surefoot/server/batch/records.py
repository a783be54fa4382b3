"""Records that outlive the server: a folder of small files, each written atomically.

A file holds its record twice, each copy with a checksum. A damaged copy is repaired from the other.
"""

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from surefoot.machine.atomic_write import atomic_write
from surefoot.server.batch.checksummed import verified, with_checksum
from surefoot.server.schemas.batches import Record

LOG = logging.getLogger(__name__)
SUFFIX = ".record"
_OWNER = re.compile(rb'"owner": "([^"\\]{0,128})"')


R = TypeVar("R", bound=Record)


class Records(Generic[R]):
    """All records of one kind, in memory and on disk, the oldest first. Its methods may be called by any thread.

    unreadable: ids of records on disk that could not be read.
    """

    def __init__(self, folder: Path, kind: type[R], stand_in: Callable[[str, str, int], R] | None = None) -> None:
        """stand_in: makes a record from id, owner and time, which replaces a record that cannot be read.

        Raises OSError if the folder cannot be read.
        """
        folder.mkdir(exist_ok=True, mode=0o700)
        self._folder = folder
        self._kind = kind
        self._stand_in = stand_in
        self._changing = threading.Lock()
        for path in folder.glob("*.partial"):  # left by a write that was cut off
            path.unlink()
        names = [name for name in os.listdir(folder) if SUFFIX in name]
        paths = [folder / name for name in names if name.endswith(SUFFIX)]
        records = [record for path in paths if (record := self._read(path)) is not None]
        records.sort(key=lambda record: (record.created_at, record.id))
        self._records = {record.id: record for record in records}
        self.unreadable = {name.partition(SUFFIX)[0] for name in names} - self._records.keys()

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._records.values()))

    def __contains__(self, record_id: str) -> bool:
        return record_id in self._records

    def __getitem__(self, record_id: str) -> R:
        return self._records[record_id]

    def get(self, owner: str, record_id: str) -> R | None:
        record = self._records.get(record_id)
        return record if record is not None and record.owner == owner else None

    def of(self, owner: str) -> list[R]:
        return [record for record in self if record.owner == owner]

    def save(self, record: R) -> R:
        """Store a record; it is on disk when this returns. Raises OSError, after which memory is unchanged."""
        with self._changing:
            try:
                self._write(record)
            except OSError:
                if record.id not in self._records:  # the file may already have its final name
                    with contextlib.suppress(OSError):
                        self._path(record.id).unlink(missing_ok=True)
                raise
            self._records[record.id] = record
        return record

    def hold(self, record: R) -> None:
        """Keep a record in memory alone, where the disk does not take it."""
        self._records[record.id] = record

    def remove(self, record: R) -> None:
        with self._changing:
            self._path(record.id).unlink(missing_ok=True)
            self._records.pop(record.id, None)

    # ---- on disk ----

    def _path(self, record_id: str) -> Path:
        return self._folder / f"{record_id}{SUFFIX}"

    def _write(self, record: R) -> None:
        with atomic_write(self._path(record.id)) as fresh:
            fresh.write_bytes(2 * with_checksum(record.model_dump(mode="json")))

    def _read(self, path: Path) -> R | None:
        try:
            raw = path.read_bytes()
        except OSError as error:
            LOG.error("%s is left out until the next start: %s", path, error)
            return None
        copies = [self._parse(line) for line in raw.split(b"\n")[:-1]]
        record = next((copy for copy in copies if copy is not None), None) or self._set_aside(path, raw)
        if record is not None and (len(copies) != 2 or None in copies):
            LOG.warning("%s was damaged: it is written again", path)
            with contextlib.suppress(OSError):
                self._write(record)
        return record

    def _parse(self, line: bytes) -> R | None:
        with contextlib.suppress(ValidationError):  # of None too
            return self._kind.model_validate(verified(line + b"\n"))
        return None

    def _set_aside(self, path: Path, raw: bytes) -> R | None:
        LOG.error("%s is damaged: set aside as %s.damaged", path, path.name)
        created_at = int(time.time())
        with contextlib.suppress(OSError):
            created_at = int(path.stat().st_mtime)
            path.rename(path.with_name(path.name + ".damaged"))
        owner = _OWNER.search(raw)
        if self._stand_in is None or owner is None:
            return None
        return self._stand_in(path.name.removesuffix(SUFFIX), owner[1].decode(errors="replace"), created_at)


def page(records: list[R], after: str | None, limit: int, order: str = "desc") -> tuple[list[R], dict[str, Any]]:
    """At most `limit` records after the record `after`, and the fields of a reply that say where the page lies."""
    listed = records if order == "asc" else records[::-1]
    ids = [record.id for record in listed]
    first = ids.index(after) + 1 if after in ids else 0
    shown = listed[first : first + limit]
    ends = {"first_id": shown[0].id, "last_id": shown[-1].id} if shown else {}
    return shown, {"has_more": len(listed) > first + limit, **ends}
