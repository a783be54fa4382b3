"""/v1/files: what batches read and write. A user's files are theirs alone."""

import contextlib
import hashlib
import logging
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Container
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from fastapi import APIRouter, File, Form, Query, UploadFile
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, Response

from surefoot.machine.atomic_write import written_whole
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.keys import ANYONE
from surefoot.server.records import ends, page
from surefoot.server.schemas.batches import Deleted, FileList, FileRecord, FileReply
from surefoot.server.state import StateFolder, storage_errors

ROUTE = "/v1/files"
MOST_FILES = 500  # of a user
PIECE_BYTES = 1 << 20
LOG = logging.getLogger(__name__)
Limit = Annotated[int, Query(ge=1, le=10_000)]
After = Annotated[str | None, Query(max_length=64)]


class Files:
    """Records, and beside them the bytes."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._folder = state.path / "files"
        self._records = state.files
        self.growing: dict[str, tuple[str, int]] = {}  # owner and bytes of what has no record yet, by id
        self.mend: Callable[[FileRecord], Awaitable[bool]] | None = None  # whether a damaged file is being made again

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

    def check_room(self, owner: str, num_bytes: int = 0) -> None:
        """Raises ApiError if a user may not have that many bytes more: as many as they hold must be left for others."""
        own, others = self._held(owner)
        left = self._state.max_bytes - others
        _check_share(own + num_bytes, left if owner == ANYONE.user else left // 2)

    def check_growth(self, owner: str) -> None:
        """The same for answers to what has begun, which new files of others do not stop."""
        own, others = self._held(owner)
        left = self._state.max_bytes - others
        _check_share(own, left if owner == ANYONE.user else min(left, self._state.max_bytes // 2))

    def _held(self, owner: str) -> tuple[int, int]:
        """Bytes of this user and of the others."""
        held = [(record.owner, record.bytes) for record in self._records] + list(self.growing.values())
        own = sum(size for whose, size in held if whose == owner)
        return own, sum(size for _, size in held) - own

    # ---- changes ----

    async def add(self, owner: str, upload: UploadFile, purpose: str) -> FileRecord:
        num_files = len(self.of(owner)) + sum(whose == owner for whose, _ in self.growing.values())
        if num_files >= MOST_FILES:
            raise ApiError(
                400, f"you have {num_files} files, as many as are allowed: delete some", code="too_many_files"
            )
        self.check_room(owner, upload.size or 0)
        file_id = new_id()
        self.growing[file_id] = owner, upload.size or 0
        try:
            filename = (upload.filename or "file")[:255]
            return await self._state.disk.run(self._store, owner, file_id, filename, purpose, upload.file)
        finally:
            del self.growing[file_id]

    def _store(self, owner: str, file_id: str, filename: str, purpose: str, source: BinaryIO) -> FileRecord:
        path = self.path(file_id)
        try:
            with written_whole(path) as fresh, fresh.open("wb") as target:
                shutil.copyfileobj(source, target, PIECE_BYTES)
            return self.register(owner, file_id, filename, purpose)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise

    def register(self, owner: str, file_id: str, filename: str, purpose: str) -> FileRecord:
        """The bytes are there, and on disk."""
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
        """Bytes whose record was never written, or is gone. keep: ids of files that have no record yet."""
        for path in list(self._folder.iterdir()):
            file_id, _, rest = path.name.partition(".")
            is_known = file_id in self._records or file_id in self._records.unreadable or file_id in keep
            if rest.endswith(".partial") or (rest.startswith("jsonl") and not is_known):
                path.unlink()

    # ---- reading ----

    def is_sound(self, record: FileRecord) -> bool:
        """Its bytes are those that were written."""
        try:
            return _digest(self.path(record.id)) == record.sha256
        except FileNotFoundError:
            if not self._folder.is_dir():  # the disk is away
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


def _check_share(num_bytes: int, most: int) -> None:
    if num_bytes > most:
        message = f"your files and answers may take {max(0, most)} bytes here and would take {num_bytes}"
        raise ApiError(413, f"{message}: delete some files", code="storage_share")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def new_id() -> str:
    return f"file-{secrets.token_hex(12)}"


def reply(record: FileRecord) -> FileReply:
    return FileReply(**record.model_dump(exclude={"owner", "sha256"}))


def files_router(files: Files | None) -> APIRouter:
    """files: None if there is no folder for them."""
    router = APIRouter()

    def there() -> Files:
        if files is None:
            raise no_folder()
        return files

    @router.post(ROUTE)
    async def upload_file(
        http: HttpRequest,
        file: Annotated[UploadFile, File()],
        purpose: Annotated[Literal["batch", "user_data"], Form()],
    ) -> FileReply:
        if not file.size:
            raise bad_request("the file is empty", "file")
        with storage_errors():
            return reply(await there().add(http.state.caller.user, file, purpose))

    @router.get(ROUTE)
    async def list_files(
        http: HttpRequest,
        purpose: Annotated[str | None, Query(max_length=64)] = None,
        after: After = None,
        limit: Limit = 10_000,
        order: Literal["asc", "desc"] = "desc",
    ) -> FileList:
        found = [one for one in there().of(http.state.caller.user) if purpose in (None, one.purpose)]
        shown, has_more = page(found, after, limit, order)
        first, last = ends(shown)
        return FileList(data=[reply(one) for one in shown], has_more=has_more, first_id=first, last_id=last)

    @router.get(ROUTE + "/{file_id}")
    async def retrieve_file(file_id: str, http: HttpRequest) -> FileReply:
        return reply(there().get(http.state.caller.user, file_id))

    @router.delete(ROUTE + "/{file_id}")
    async def delete_file(file_id: str, http: HttpRequest) -> Deleted:
        record = there().get(http.state.caller.user, file_id)
        with storage_errors():
            await there().remove(record)
        return Deleted(id=record.id)

    @router.get(ROUTE + "/{file_id}/content", response_class=FileResponse)
    async def content_of_file(file_id: str, http: HttpRequest) -> Response:
        record = there().get(http.state.caller.user, file_id)
        with storage_errors():
            await there().check(record)
        return FileResponse(there().path(record.id), media_type="application/octet-stream")

    return router


def no_folder() -> ApiError:
    return ApiError(501, "this server has no folder for files: start it with --state-dir FOLDER", code="no_state_dir")
