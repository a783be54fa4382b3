"""Batches: files of requests that are answered when there is time, also after the server was killed."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from surefoot.api.batch import AnswerFile, Line, read_lines
from surefoot.server.asker import Asker
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.files import Files
from surefoot.server.keys import ANYONE, Caller, KeyStore
from surefoot.server.lines import DONE, Slots, answer_all
from surefoot.server.records import Records, StateFolder
from surefoot.server.schemas.batches import UNFINISHED, BatchRecord, BatchRequest, Counts, Status
from surefoot.server.service import Service

MOST_LINES = 50_000
MOST_UNFINISHED = 32  # of a user
MOST_RUNNING = 8  # of different users
MOST_KEPT = 1000  # of a user; then the eldest that have ended are forgotten
LOG = logging.getLogger(__name__)


class Batches:
    """Runs those that have not ended, one of a user at a time. Lives on the event loop."""

    def __init__(self, service: Service, keys: KeyStore | None, state: StateFolder, files: Files) -> None:
        self._service = service
        self._keys = keys
        self._files = files
        self._records = Records(state.path / "batches", BatchRecord)
        self._running: dict[str, asyncio.Task[None]] = {}  # by user
        self._counts: dict[str, Counts] = {}  # of those that run
        self._slots = Slots(max(1, service.llm.llm.room.scheduling.max_running // 2))

    # ---- for the routes ----

    def get(self, owner: str, batch_id: str) -> BatchRecord:
        record = self._records.get(owner, batch_id)
        if record is None:
            raise ApiError(404, f"there is no batch {batch_id[:80]!r}", param="batch_id", code="not_found")
        return self._counted(record)

    def of(self, owner: str) -> list[BatchRecord]:
        return [self._counted(record) for record in self._records.of(owner)]

    def _counted(self, record: BatchRecord) -> BatchRecord:
        return record.model_copy(update={"request_counts": self._counts.get(record.id, record.request_counts)})

    def create(self, owner: str, body: BatchRequest) -> BatchRecord:
        if self._files.get(owner, body.input_file_id).purpose != "batch":
            raise bad_request(
                "the file was uploaded for another purpose: upload it with purpose batch", "input_file_id"
            )
        own = self._records.of(owner)
        if sum(record.status in UNFINISHED for record in own) >= MOST_UNFINISHED:
            raise bad_request(f"{MOST_UNFINISHED} of your batches have not ended: wait, or cancel one")
        for record in [one for one in own if one.status not in UNFINISHED][: max(0, len(own) - MOST_KEPT + 1)]:
            self._records.remove(record)
        now = int(time.time())
        made = BatchRecord(
            id=f"batch_{secrets.token_hex(12)}", owner=owner, created_at=now, endpoint=body.endpoint,
            input_file_id=body.input_file_id, completion_window=body.completion_window,
            expires_at=now + body.window_s, metadata=body.metadata,
        )  # fmt: skip
        self._records.save(made)
        self.start()
        return made

    def cancel(self, owner: str, batch_id: str) -> BatchRecord:
        record = self.get(owner, batch_id)
        if record.status not in ("validating", "in_progress", "cancelling"):
            raise bad_request(f"the batch is {record.status}: there is nothing to cancel", code="invalid_status")
        record = self._become(record, "cancelling")
        running = self._running.get(owner)
        if running is not None and running.get_name() == batch_id:
            running.cancel()
        else:
            record = self._become(record, "cancelled")
        return self._counted(record)

    # ---- running ----

    def start(self) -> None:
        """Whatever can run now does."""
        for record in self._records:
            if record.status in UNFINISHED and record.owner not in self._running and len(self._running) < MOST_RUNNING:
                task = asyncio.create_task(self._run(record), name=record.id)
                self._running[record.owner] = task
                task.add_done_callback(lambda done, owner=record.owner: self._ended(owner, done))  # type: ignore[misc]

    def _ended(self, owner: str, task: "asyncio.Task[None]") -> None:
        self._running.pop(owner, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            LOG.error("%s is left until the next start", task.get_name(), exc_info=error)
        else:
            self.start()

    async def stop(self) -> None:
        """What has not ended goes on with the next start."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, record: BatchRecord) -> None:
        try:
            await self._answer(record)
        except asyncio.CancelledError:
            asked = self._records.get(record.owner, record.id)
            if asked is None or asked.status != "cancelling":
                raise
            self._finish(asked, "cancelled")
        finally:
            self._counts.pop(record.id, None)

    async def _answer(self, record: BatchRecord) -> None:
        if record.status == "cancelling":
            self._finish(record, "cancelled")
            return
        source = self._files.path(record.input_file_id)
        try:
            ids = await asyncio.to_thread(_check, read_lines(source), record.endpoint)
        except (ValueError, OSError) as error:
            message = "the input file is gone" if isinstance(error, OSError) else str(error)
            data = [{"code": "invalid_file", "message": message, "line": None, "param": None}]
            self._become(record, "failed", errors={"object": "list", "data": data})
            return
        if record.status == "validating":
            record = self._become(record, "in_progress")
        with self._open(record, ids) as answers:
            self._counts[record.id] = counts = Counts(total=len(ids), completed=len(answers.good.done))
            counts.failed = len(answers.bad.done)
            is_late = await self._answer_lines(record, answers, counts)
        self._finish(record, "expired" if is_late else "completed")

    async def _answer_lines(self, record: BatchRecord, answers: "Answers", counts: Counts) -> bool:
        """Whether the time was up before the end."""

        def write(line: Line, status: int, body: dict[str, Any]) -> None:
            (answers.good if status == DONE else answers.bad).write(line, status, body)
            counts.completed += status == DONE
            counts.failed += status != DONE

        def left() -> Iterator[Line]:
            lines = read_lines(self._files.path(record.input_file_id))
            return (line for line in lines if line.custom_id not in answers)

        def asker_of(line: Line) -> Asker:
            return Asker(
                self._caller(record.owner), record.endpoint, request=line.digest[:32], is_patient=True,
                deadline_s=max(1.0, record.expires_at - time.time()),
            )  # fmt: skip

        try:
            async with asyncio.timeout(max(0.0, record.expires_at - time.time())):
                await answer_all(self._service, left(), self._slots, asker_of, write)
        except TimeoutError:
            late = ApiError(408, "the completion window had passed before this was answered", code="batch_expired")
            for line in left():
                write(line, late.status, late.as_openai())
            return True
        return False

    def _caller(self, owner: str) -> Caller:
        """Raises ApiError, which has the line tried again, while the user has no key."""
        if self._keys is None:
            return ANYONE
        caller = self._keys.find_user(owner)
        if caller is None:
            raise ApiError(503, "this user has no key any more", headers={"Retry-After": "10"})
        return caller

    # ---- records ----

    def _open(self, record: BatchRecord, ids: Mapping[str, str]) -> "Answers":
        good, bad = _answer_ids(record)
        return Answers(AnswerFile(self._files.path(good), ids), AnswerFile(self._files.path(bad), ids))

    def _become(self, record: BatchRecord, status: Status, **more: Any) -> BatchRecord:
        stamp = {f"{status}_at": int(time.time())} if f"{status}_at" in BatchRecord.model_fields else {}
        return self._records.save(record.model_copy(update={"status": status, **stamp, **more}))

    def _finish(self, record: BatchRecord, status: Status) -> None:
        """Answers become files. Killed on the way, it is done again, to the same end."""
        found: dict[str, str | None] = {}
        for name, file_id in zip(("output", "error"), _answer_ids(record), strict=True):
            path = self._files.path(file_id)
            if path.exists() and path.stat().st_size:
                self._files.register(record.owner, file_id, f"{record.id}_{name}.jsonl", "batch_output")
                found[f"{name}_file_id"] = file_id
            else:
                path.unlink(missing_ok=True)
        counts = self._counts.get(record.id, record.request_counts)
        self._become(record, status, request_counts=counts, **found)


def _answer_ids(record: BatchRecord) -> tuple[str, str]:
    """Of the files of its answers: always the same."""
    name = record.id.removeprefix("batch_")
    return f"file-{name}o", f"file-{name}e"


def _check(lines: Iterator[Line], endpoint: str) -> dict[str, str]:
    """Ids by custom_id. Raises ValueError for what no batch can be."""
    ids: dict[str, str] = {}
    for line in lines:
        if line.content.get("url") != endpoint:
            raise ValueError(f"line {line.number} has another url than the batch's endpoint {endpoint}")
        ids[line.custom_id] = line.id
        if len(ids) > MOST_LINES:
            raise ValueError(f"the file has more than {MOST_LINES} lines: make several batches of it")
    if not ids:
        raise ValueError("the file has no lines")
    return ids


class Answers:
    """A line is in one of the two files, or in neither."""

    def __init__(self, good: AnswerFile, bad: AnswerFile) -> None:
        self.good, self.bad = good, bad
        self._files = contextlib.ExitStack()

    def __contains__(self, custom_id: str) -> bool:
        return custom_id in self.good.done or custom_id in self.bad.done

    def __enter__(self) -> "Answers":
        for file in (self.good, self.bad):
            self._files.enter_context(file)
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()
