"""/v1/files and /v1/batches."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from surefoot.server.schemas.base import Body, Reply

After = Annotated[str | None, Field(max_length=64)]  # not of fastapi, which is imported beside the weights
FileId = Annotated[str, Field(max_length=64)]
Status = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]  # fmt: skip
UNFINISHED: tuple[Status, ...] = ("validating", "in_progress", "finalizing", "cancelling")


class FileReply(Reply):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class Counts(Reply):
    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchReply(Reply):
    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    input_file_id: str
    completion_window: str
    status: Status = "validating"
    created_at: int
    errors: dict[str, Any] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: Counts = Counts()
    metadata: dict[str, str] | None = None


class Record(BaseModel):
    """What the server keeps of a file or a batch. Routes reply with the part that the reply's class has."""

    id: str
    owner: str  # the user; other users cannot see the record
    created_at: int


class FileRecord(Record, FileReply):
    sha256: str  # of the bytes, in hexadecimal; never shown


class BatchRecord(Record, BatchReply):
    pass


def errors_of(code: str, message: str) -> dict[str, Any]:
    """A batch's `errors` field."""
    data = [{"code": code, "message": message, "line": None, "param": None}]
    return {"object": "list", "data": data}


class BatchRequest(Body):
    input_file_id: FileId
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank"]
    completion_window: Annotated[str, Field(pattern=r"^([1-9]|[1-9][0-9]|1[0-6][0-9])h$")]
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, Field(max_length=16)
    ] = None


def window_s(completion_window: str) -> int:
    return 3600 * int(completion_window[:-1])


Shown = TypeVar("Shown")


class Page(Reply, Generic[Shown]):
    object: Literal["list"] = "list"
    data: list[Shown]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class Deleted(Reply):
    id: str
    object: Literal["file"] = "file"
    deleted: bool = True
