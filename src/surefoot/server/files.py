"""/v1/files: what batches read and write. A user's files are theirs alone."""

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, UploadFile
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, Response

from surefoot.server.errors import ApiError, bad_request
from surefoot.server.records import Records, StateFolder, ends, page
from surefoot.server.schemas.batches import Deleted, FileList, FileRecord, FileReply

ROUTE = "/v1/files"
MOST_FILES, MOST_USER_BYTES = 500, 2 << 30
PIECE_BYTES = 1 << 20
Limit = Annotated[int, Query(ge=1, le=10_000)]
After = Annotated[str | None, Query(max_length=64)]


class Files:
    """Records, and beside them the bytes."""

    def __init__(self, state: StateFolder) -> None:
        self._folder = state.path / "files"
        self._records = Records(self._folder, FileRecord)
        for path in self._folder.glob("*.upload"):
            path.unlink()  # of an upload that was cut off

    def path(self, file_id: str) -> Path:
        return self._folder / f"{file_id}.jsonl"

    def get(self, owner: str, file_id: str) -> FileRecord:
        record = self._records.get(owner, file_id)
        if record is None:
            raise ApiError(404, f"there is no file {file_id[:80]!r}", param="file_id", code="not_found")
        return record

    def of(self, owner: str) -> list[FileRecord]:
        return self._records.of(owner)

    async def add(self, owner: str, upload: UploadFile, purpose: str) -> FileRecord:
        own = self.of(owner)
        if len(own) >= MOST_FILES or sum(one.bytes for one in own) + (upload.size or 0) > MOST_USER_BYTES:
            raise ApiError(
                400, f"you have {len(own)} files, as many as are allowed: delete some", code="too_many_files"
            )
        file_id = new_id()
        fresh = self._folder / f"{file_id}.upload"
        try:
            with fresh.open("wb") as file:
                while piece := await upload.read(PIECE_BYTES):
                    file.write(piece)
                os.fsync(file.fileno())
            os.replace(fresh, self.path(file_id))
        finally:
            fresh.unlink(missing_ok=True)
        return self.register(owner, file_id, (upload.filename or "file")[:255], purpose)

    def register(self, owner: str, file_id: str, filename: str, purpose: str) -> FileRecord:
        """The bytes are there."""
        nbytes, now = self.path(file_id).stat().st_size, int(time.time())
        record = FileRecord(id=file_id, owner=owner, created_at=now, bytes=nbytes, filename=filename, purpose=purpose)
        return self._records.save(record)

    def remove(self, record: FileRecord) -> None:
        self._records.remove(record)
        with contextlib.suppress(FileNotFoundError):
            self.path(record.id).unlink()


def new_id() -> str:
    return f"file-{secrets.token_hex(12)}"


def reply(record: FileRecord) -> FileReply:
    return FileReply(**record.model_dump(exclude={"owner"}))


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
        there().remove(record)
        return Deleted(id=record.id)

    @router.get(ROUTE + "/{file_id}/content", response_class=FileResponse)
    async def content_of_file(file_id: str, http: HttpRequest) -> Response:
        record = there().get(http.state.caller.user, file_id)
        return FileResponse(there().path(record.id), media_type="application/octet-stream")

    return router


def no_folder() -> ApiError:
    return ApiError(501, "this server has no folder for files: start it with --state-dir FOLDER", code="no_state_dir")
