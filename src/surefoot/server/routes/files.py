"""/v1/files: upload, list, read and delete the files of batches."""

from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, UploadFile
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, Response

from surefoot.server.batch.files import Files
from surefoot.server.batch.records import page
from surefoot.server.batch.state import needed, storage_errors
from surefoot.server.errors import bad_request
from surefoot.server.schemas.batches import After, Deleted, FileReply, Page

ROUTE = "/v1/files"
Limit = Annotated[int, Query(ge=1, le=10_000)]


def files_router(files: Files | None) -> APIRouter:
    """files: None if the server has no state folder."""
    router = APIRouter()

    @router.post(ROUTE)
    async def upload_file(
        http: HttpRequest,
        file: Annotated[UploadFile, File()],
        purpose: Annotated[Literal["batch", "user_data"], Form()],
    ) -> FileReply:
        if not file.size:
            raise bad_request("the file is empty", "file")
        with storage_errors():
            return await needed(files).add(http.state.caller.user, file, purpose)

    @router.get(ROUTE)
    async def list_files(
        http: HttpRequest,
        purpose: Annotated[str | None, Query(max_length=64)] = None,
        after: After = None,
        limit: Limit = 10_000,
        order: Literal["asc", "desc"] = "desc",
    ) -> Page[FileReply]:
        records = [record for record in needed(files).of(http.state.caller.user) if purpose in (None, record.purpose)]
        shown, place = page(records, after, limit, order)
        return Page(data=[*shown], **place)

    @router.get(ROUTE + "/{file_id}")
    async def retrieve_file(file_id: str, http: HttpRequest) -> FileReply:
        return needed(files).get(http.state.caller.user, file_id)

    @router.delete(ROUTE + "/{file_id}")
    async def delete_file(file_id: str, http: HttpRequest) -> Deleted:
        record = needed(files).get(http.state.caller.user, file_id)
        with storage_errors():
            await needed(files).remove(record)
        return Deleted(id=record.id)

    @router.get(ROUTE + "/{file_id}/content", response_class=FileResponse)
    async def content_of_file(file_id: str, http: HttpRequest) -> Response:
        record = needed(files).get(http.state.caller.user, file_id)
        with storage_errors():
            await needed(files).check(record)
        return FileResponse(needed(files).path(record.id), media_type="application/octet-stream")

    return router
