"""A client's upload and batch on the server's own state, without sockets, and what must be true of it afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile

from surefoot import LLM
from surefoot.api.async_llm import AsyncLLM
from surefoot.api.fingerprint import fingerprint
from surefoot.server.batch.batches import Batches
from surefoot.server.batch.files import Files
from surefoot.server.batch.lines import answer_line
from surefoot.server.batch.state import StateFolder, storage_errors
from surefoot.server.errors import ApiError
from surefoot.server.schemas.batches import UNFINISHED, BatchRecord, BatchRequest
from surefoot.server.service import Service
from surefoot.server.settings import ServerSettings

ROUTE, OWNER = "/v1/chat/completions", ""
VARYING = ("timings_ms", "prompt_tokens_details", "completion_tokens_details")  # of usage: time, cache, drafts
WAIT_S = 60.0


@dataclass(frozen=True)
class Place:
    """A server's inside, over one folder."""

    state: StateFolder
    files: Files
    batches: Batches

    async def upload(self, data: bytes, owner: str = OWNER) -> str:
        upload = UploadFile(BytesIO(data), size=len(data), filename="in.jsonl")
        with storage_errors():
            return (await self.files.add(owner, upload, "batch")).id

    async def create(self, file: str, owner: str = OWNER) -> str:
        body = BatchRequest(input_file_id=file, endpoint=ROUTE, completion_window="24h")
        with storage_errors():
            return (await self.batches.create(owner, body)).id

    async def begin(self, data: bytes, owner: str = OWNER) -> str:
        return await self.create(await self.upload(data, owner), owner)

    async def ended(self, batch: str, owner: str = OWNER) -> BatchRecord:
        await until(lambda: self.batches.get(owner, batch).status not in UNFINISHED)
        return self.batches.get(owner, batch)

    def answers(self, batch: BatchRecord) -> dict[str, Any]:
        """Of both files."""
        files = [file for file in (batch.output_file_id, batch.error_file_id) if file]
        return answers_in(b"".join(self.files.path(file).read_bytes() for file in files))


@asynccontextmanager
async def opened(folder: Path, llm: LLM, **settings: Any) -> AsyncIterator[Place]:
    """max_bytes among the settings is the folder's."""
    state = StateFolder(folder, settings.pop("max_bytes", 1 << 30))
    service = Service(AsyncLLM(llm), ServerSettings(model_name="small", **settings), str(fingerprint(llm)))
    service.llm.start()
    files = Files(state)
    batches = Batches(
        partial(answer_line, service), None, state, files, num_slots=max(1, service.llm.max_running // 2),
        disk_patience_s=service.settings.disk_patience_s,
    )  # fmt: skip
    batches.start()
    try:
        yield Place(state, files, batches)
    finally:
        await batches.stop()
        await service.llm.stop()
        state.close()


async def until(is_so: Callable[[], bool], seconds: float = WAIT_S) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.005)


def answers_in(raw: bytes) -> dict[str, Any]:
    """By custom_id, without what may differ."""
    replies = [json.loads(line) for line in raw.splitlines()]
    assert len({reply["custom_id"] for reply in replies}) == len(replies), "a line came twice"
    return {reply["custom_id"]: without_varying(reply) for reply in replies}


def without_varying(reply: dict[str, Any]) -> dict[str, Any]:
    reply.pop("checksum")
    body = reply["response"]["body"]
    body.pop("created", None)
    for name in VARYING:
        body.get("usage", {}).pop(name, None)
    return reply


def line(number: int, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Once upon a time {number}"}]
    body = {"model": "small", "messages": messages, "max_tokens": 6, "logprobs": True} | body
    return {"custom_id": f"line-{number}", "method": "POST", "url": ROUTE, "body": body}


def text_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def deep(number: int, levels: int) -> bytes:
    """A line of JSON that no parser which calls itself can read."""
    shallow = json.dumps(line(number, messages="HERE")).encode() + b"\n"
    return shallow.replace(b'"HERE"', b"[" * levels + b"]" * levels)


SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
REQUESTS = b"".join(
    (
        text_of([line(number) for number in range(4)]),
        text_of([line(4, temperature=9), line(5, response_format=FORMAT, max_tokens=40)]),
        deep(6, 5_000),
    )
)


@dataclass
class Told:
    """The ids that the client received."""

    file: str | None = None
    batch: str | None = None


async def client(place: Place, told: Told, num_tries: int) -> None:
    """Uploads and makes a batch, again if it is refused, and waits for its end."""
    for _ in range(num_tries):
        try:
            told.file = told.file or await place.upload(REQUESTS)
            told.batch = told.batch or await place.create(told.file)
            break
        except ApiError:
            await asyncio.sleep(0.01)
    if told.batch is not None:
        await place.ended(told.batch)


async def check_whole(folder: Path, llm: LLM, told: Told, peaceful: dict[str, Any]) -> None:
    """After a start without faults: all acknowledged data is there, and all data is intact."""
    async with opened(folder, llm) as place:
        for record in place.batches.of(OWNER):
            record = await place.ended(record.id)
            assert (record.status, record.errors) == ("completed", None), record
            assert place.answers(record) == peaceful
        assert told.batch is None or told.batch in [record.id for record in place.batches.of(OWNER)]
        assert told.file is None or told.file in [record.id for record in place.files.of(OWNER)]
        assert all(place.files.is_sound(record) for record in place.files.of(OWNER))
        known = {record.id for record in place.files.of(OWNER)}
        found = {path.name.partition(".")[0] for path in (folder / "state-2" / "files").iterdir()}
        assert found == known, f"strays: {found - known}"
