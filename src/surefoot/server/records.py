"""Records that outlive the server: a folder of small JSON files, each replaced whole."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

LOG = logging.getLogger(__name__)


class Record(BaseModel):
    """owner: the user it belongs to; others are not told that it is there."""

    id: str
    owner: str
    created_at: int


R = TypeVar("R", bound=Record)


class StateFolder:
    """The folder that one server keeps its state in. Raises OSError if it cannot be used, or if another server does."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = path
        self._lock = (path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise OSError(f"{path} is in use by another server: give this one a folder with --state-dir") from None

    def close(self) -> None:
        self._lock.close()


class Records(Generic[R]):
    """All of one kind, in memory and on disk, the eldest first."""

    def __init__(self, folder: Path, kind: type[R]) -> None:
        folder.mkdir(exist_ok=True, mode=0o700)
        self._folder = folder
        self._kind = kind
        found = [record for path in folder.glob("*.json") if (record := self._read(path)) is not None]
        self._records = {record.id: record for record in sorted(found, key=lambda one: (one.created_at, one.id))}

    def _read(self, path: Path) -> R | None:
        try:
            return self._kind.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            LOG.error("%s is left out: %s", path, error)
            return None

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._records.values()))

    def get(self, owner: str, record_id: str) -> R | None:
        record = self._records.get(record_id)
        return record if record is not None and record.owner == owner else None

    def of(self, owner: str) -> list[R]:
        return [record for record in self._records.values() if record.owner == owner]

    def save(self, record: R) -> R:
        """On disk when this returns."""
        path = self._folder / f"{record.id}.json"
        fresh = path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(record.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        self._records[record.id] = record
        return record

    def remove(self, record: R) -> None:
        self._records.pop(record.id, None)
        with contextlib.suppress(FileNotFoundError):
            (self._folder / f"{record.id}.json").unlink()


def page(records: list[R], after: str | None, limit: int, order: str = "desc") -> tuple[list[R], bool]:
    """Those behind `after`, at most `limit`, and whether there are more."""
    listed = records if order == "asc" else records[::-1]
    ids = [record.id for record in listed]
    first = ids.index(after) + 1 if after in ids else 0
    return listed[first : first + limit], len(listed) > first + limit


def ends(shown: Sequence[Record]) -> tuple[str | None, str | None]:
    """A page's first and last id."""
    return (shown[0].id, shown[-1].id) if shown else (None, None)
