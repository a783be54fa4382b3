"""Files that clients upload for batches, and files of answers. A user sees only their own files."""

import contextlib
import hashlib
import logging
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Container
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import UploadFile

from surefoot.machine.atomic_write import atomic_write
from surefoot.server.access.shares import ANYONE
from surefoot.server.batch.state import StateFolder
from surefoot.server.errors import ApiError
from surefoot.server.schemas.batches import FileRecord

MOST_FILES = 500  # per user
PIECE_BYTES = 1 << 20
LOG = logging.getLogger(__name__)


class Files:
    """The records of all files, and their bytes beside them."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._folder = state.path / "files"
        self._records = state.files
        self.growing: dict[str, tuple[str, int]] = {}  # owner and size of files without a record yet, by id
        # Starts to make a damaged file again; returns whether it can.
        self.mend: Callable[[FileRecord], Awaitable[bool]] | None = None

    def path(self, file_id: str) -> Path:
        return self._folder / f"{file_id}.jsonl"

    def find(self, owner: str, file_id: str) -> FileRecord | None:
        return self._records.get(owner, file_id)

    def get(self, owner: str, file_id: str) -> FileRecord:
        record = self.find(owner, file_id)
        if record is None:
            raise ApiError(404, f"there is no file {file_id[:80]!r}", param="file_id", code="not_found")
        return record

    def of(self, owner: str) -> list[FileRecord]:
        return self._records.of(owner)

    # ---- shares of the disk ----

    def check_room(self, owner: str, num_bytes: int = 0, *, is_running: bool = False) -> None:
        """Raises ApiError if the user may not add that many bytes: as much as they hold must stay free for others.

        is_running: for answers of a running batch, which new files of other users must not stop.
        """
        held = [(record.owner, record.bytes) for record in self._records] + list(self.growing.values())
        own = num_bytes + sum(size for whose, size in held if whose == owner)
        most = self._state.max_bytes - sum(size for whose, size in held if whose != owner)
        if owner != ANYONE.user:
            most = min(most, self._state.max_bytes // 2) if is_running else most // 2
        if own > most:
            message = f"your files and answers may take {max(0, most)} bytes here and would take {own}"
            raise ApiError(413, f"{message}: delete some files", code="storage_share")

    # ---- changes ----

    async def add(self, owner: str, upload: UploadFile, purpose: str) -> FileRecord:
        num_files = len(self.of(owner)) + sum(whose == owner for whose, _ in self.growing.values())
        if num_files >= MOST_FILES:
            raise ApiError(
                400, f"you have {num_files} files, as many as are allowed: delete some", code="too_many_files"
            )
        self.check_room(owner, upload.size or 0)
        file_id = f"file-{secrets.token_hex(12)}"
        self.growing[file_id] = owner, upload.size or 0
        try:
            filename = (upload.filename or "file")[:255]
            return await self._state.disk.run(self._store, owner, file_id, filename, purpose, upload.file)
        finally:
            del self.growing[file_id]

    def _store(self, owner: str, file_id: str, filename: str, purpose: str, source: BinaryIO) -> FileRecord:
        path = self.path(file_id)
        try:
            with atomic_write(path) as fresh, fresh.open("wb") as target:
                shutil.copyfileobj(source, target, PIECE_BYTES)
            return self.register(owner, file_id, filename, purpose)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise

    def register(self, owner: str, file_id: str, filename: str, purpose: str) -> FileRecord:
        """Make a record for bytes that are already on disk."""
        path, now = self.path(file_id), int(time.time())
        record = FileRecord(
            id=file_id, owner=owner, created_at=now, bytes=path.stat().st_size, filename=filename, purpose=purpose,
            sha256=_digest(path),
        )  # fmt: skip
        return self._records.save(record)

    async def remove(self, record: FileRecord) -> None:
        await self._state.disk.run(self._remove, record)

    def _remove(self, record: FileRecord) -> None:
        self._records.remove(record)
        for path in (self.path(record.id), self._folder / f"{record.id}.jsonl.damaged"):
            path.unlink(missing_ok=True)

    def remove_strays(self, keep: Container[str]) -> None:
        """Delete bytes without a record. keep: ids of files whose record is still to come."""
        for path in list(self._folder.glob("*.jsonl*")):
            file_id = path.name.partition(".")[0]
            if not any(file_id in known for known in (self._records, self._records.unreadable, keep)):
                path.unlink()

    # ---- reading ----

    def is_sound(self, record: FileRecord) -> bool:
        """Whether the file's bytes are still those that were written."""
        try:
            return _digest(self.path(record.id)) == record.sha256
        except FileNotFoundError:
            if not self._folder.is_dir():  # the disk is not mounted
                raise
            return False

    async def check(self, record: FileRecord) -> None:
        """Raises ApiError if the file is damaged."""
        if await self._state.disk.run(self.is_sound, record):
            return
        LOG.error("%s is damaged", self.path(record.id))
        if self.mend is not None and await self.mend(record):
            message = (
                "the file was damaged on the server's disk and is being made again: wait until its batch has ended"
            )
            raise ApiError(503, message, code="file_damaged", headers={"Retry-After": "5"})
        raise ApiError(500, "the file was damaged on the server's disk: upload or make it again", code="file_damaged")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
