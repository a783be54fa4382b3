"""Runs batches when there is time for them, and resumes them after the server was killed."""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from surefoot.server.access.keys import KeyStore
from surefoot.server.access.request_context import RequestContext
from surefoot.server.access.shares import ANYONE, Caller
from surefoot.server.batch.answer_file import AnswersLocked
from surefoot.server.batch.files import Files
from surefoot.server.batch.input_lines import BatchLine, read_lines
from surefoot.server.batch.lines import AnswerLine, Slots, answer_all
from surefoot.server.batch.state import StateFolder, cause_of
from surefoot.server.batch.storage import BatchAnswers, answer_ids, batch_of, read_ids, register_answers
from surefoot.server.errors import ApiError, bad_request
from surefoot.server.schemas.batches import (
    UNFINISHED,
    BatchRecord,
    BatchRequest,
    Counts,
    FileRecord,
    Status,
    errors_of,
    window_s,
)

MOST_UNFINISHED = 32  # batches of a user
MOST_RUNNING = 8  # batches, each of another user
MOST_KEPT = 1000  # batches of a user; beyond, the oldest finished ones are forgotten
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 60.0  # before a disk that failed is tried again
LOG = logging.getLogger(__name__)


@dataclass
class RunningBatch:
    """State of a running batch that is not on disk."""

    answers: BatchAnswers | None = None
    problem: str | None = None  # why the disk does not take its answers at the moment

    @property
    def num_done(self) -> int:
        return self.answers.counts.completed + self.answers.counts.failed if self.answers is not None else 0


@dataclass
class Batches:
    """Runs the batches that have not ended, one per user at a time. Lives on the event loop."""

    answer_line: AnswerLine
    keys: KeyStore | None
    state: StateFolder
    files: Files
    num_slots: int  # answers in flight
    disk_patience_s: float  # how long a batch waits for a full or failing disk
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by user
    _running: dict[str, RunningBatch] = field(default_factory=dict)  # by batch
    _is_stopping: bool = False
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._records, self._disk, self._slots = self.state.batches, self.state.disk, Slots(self.num_slots)
        unfinished = [record.id for record in self._records if record.status in UNFINISHED]
        kept = {name for batch in (*unfinished, *self._records.unreadable) for name in answer_ids(batch)}
        self.files.remove_strays(kept)
        self.files.mend = self._mend

    # ---- for the routes ----

    def get(self, owner: str, batch_id: str) -> BatchRecord:
        record = self._records.get(owner, batch_id)
        if record is None:
            raise ApiError(404, f"there is no batch {batch_id[:80]!r}", param="batch_id", code="not_found")
        return self._shown(record)

    def of(self, owner: str) -> list[BatchRecord]:
        return [self._shown(record) for record in self._records.of(owner)]

    def _shown(self, record: BatchRecord) -> BatchRecord:
        """The record with its progress and what it waits for, which are not on disk."""
        running = self._running.get(record.id, RunningBatch())
        update: dict[str, Any] = {}
        if running.answers is not None:
            update["request_counts"] = running.answers.counts
        if running.problem is not None:
            update["errors"] = errors_of("storage_unavailable", running.problem)
        return record.model_copy(update=update)

    async def create(self, owner: str, body: BatchRequest) -> BatchRecord:
        if self.files.get(owner, body.input_file_id).purpose != "batch":
            raise bad_request(
                "the file was uploaded for another purpose: upload it with purpose batch", "input_file_id"
            )
        self.files.check_room(owner)
        now = int(time.time())
        record = BatchRecord(
            id=f"batch_{secrets.token_hex(12)}", owner=owner, created_at=now, endpoint=body.endpoint,
            input_file_id=body.input_file_id, completion_window=body.completion_window,
            expires_at=now + window_s(body.completion_window), metadata=body.metadata,
        )  # fmt: skip
        async with self._changing:
            await self._make_room(owner)
            await self._disk.run(self._records.save, record)
        self.start()
        return record

    async def _make_room(self, owner: str) -> None:
        own = self._records.of(owner)
        if sum(record.status in UNFINISHED for record in own) >= MOST_UNFINISHED:
            raise bad_request(f"{MOST_UNFINISHED} of your batches have not ended: wait, or cancel one")
        for record in [record for record in own if record.status not in UNFINISHED][: max(0, len(own) - MOST_KEPT + 1)]:
            await self._disk.run(self._records.remove, record)

    async def cancel(self, owner: str, batch_id: str) -> BatchRecord:
        record = self.get(owner, batch_id)
        if record.status not in ("validating", "in_progress", "cancelling"):
            raise bad_request(f"the batch is {record.status}: there is nothing to cancel", code="invalid_status")
        await self._become(batch_id, "cancelling")
        task = self._tasks.get(owner)
        if task is not None and task.get_name() == batch_id:
            task.cancel()
        else:
            await self._finish(batch_id, "cancelled")
        return self.get(owner, batch_id)

    # ---- running ----

    def start(self) -> None:
        """Start every batch that can run now."""
        for record in self._records:
            if record.status in UNFINISHED and record.owner not in self._tasks and len(self._tasks) < MOST_RUNNING:
                task = asyncio.create_task(self._run(record.id), name=record.id)
                self._tasks[record.owner] = task
                task.add_done_callback(lambda _, owner=record.owner: self._ended(owner))  # type: ignore[misc]

    def _ended(self, owner: str) -> None:
        del self._tasks[owner]
        if not self._is_stopping:
            self.start()

    async def stop(self) -> None:
        """Stop all batches. Those that have not ended go on when the server starts again."""
        self._is_stopping = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, batch_id: str) -> None:
        """Run a batch to an end of some kind: a batch without end would keep the user's other batches waiting."""
        self._running[batch_id] = running = RunningBatch()
        try:
            await self._answer_with_retries(batch_id, running)
        except asyncio.CancelledError:
            if self._is_stopping or self._records[batch_id].status != "cancelling":
                raise
            await self._end(batch_id, "cancelled")
        except ApiError as error:
            await self._end(batch_id, "failed", errors_of(error.code or "failed", error.message))
        except (OSError, MemoryError, AnswersLocked) as error:
            message = f"the server could not read or write what belongs to this batch: {cause_of(error)}"
            await self._end(batch_id, "failed", errors_of("storage_unavailable", message))
        except Exception:
            LOG.exception("%s failed", batch_id)
            await self._end(
                batch_id, "failed", errors_of("server_failed", "the server failed on this batch: see its log")
            )
        finally:
            del self._running[batch_id]

    async def _answer_with_retries(self, batch_id: str, running: RunningBatch) -> None:
        """Retry while the disk fails, with growing pauses. Raises the disk's error if that takes too long."""
        pause, num_done, since = FIRST_PAUSE_S, -1, time.monotonic()
        while True:
            try:
                return await self._answer(batch_id, running)
            # Locked: a thread of the try before this one has not closed its file yet.
            except (OSError, MemoryError, AnswersLocked) as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # a task group that fails itself swallows the cancellation
                if running.num_done > num_done:  # the disk took some answers
                    pause, num_done, since = FIRST_PAUSE_S, running.num_done, time.monotonic()
                if time.monotonic() - since > self.disk_patience_s:
                    raise
                running.problem = f"the server could not read or write ({cause_of(error)}): this is tried again"
                LOG.error("%s waits %g s for the disk: %r", batch_id, pause, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _answer(self, batch_id: str, running: RunningBatch) -> None:
        record = self._records[batch_id]
        if record.status == "cancelling":
            await self._finish(batch_id, "cancelled")
            return
        ids = await self._disk.run(read_ids, self.files, record)
        if record.status == "validating":
            record = await self._become(batch_id, "in_progress", request_counts=Counts(total=len(ids)))
        running.answers = answers = await self._disk.run(BatchAnswers, self.files, batch_id, ids)
        try:
            running.problem = None
            is_late = await self._answer_lines(record, answers)
            await self._disk.run(answers.sync)
        finally:
            self.files.growing.pop(batch_id, None)
            await self._disk.run(answers.close)
        await self._finish(batch_id, "expired" if is_late else "completed")

    async def _answer_lines(self, record: BatchRecord, answers: "BatchAnswers") -> bool:
        """Answer the lines that have no answer yet. Returns whether the completion window ended first."""

        def write(line: BatchLine, status: int, body: dict[str, Any]) -> None:
            self.files.check_room(record.owner, is_running=True)
            answers.write(line, status, body)
            self.files.growing[record.id] = record.owner, answers.num_bytes

        def left() -> Iterator[BatchLine]:
            lines = read_lines(self.files.path(record.input_file_id))
            return (line for line in lines if line.custom_id not in answers)

        def context_of(line: BatchLine) -> RequestContext:
            return RequestContext(
                self._caller(record.owner), record.endpoint, request=line.digest[:32], created=record.created_at,
                is_patient=True, deadline_s=max(1.0, record.expires_at - time.time()), num_body_bytes=line.num_bytes,
            )  # fmt: skip

        def write_late() -> None:
            late = ApiError(408, "the completion window had passed before this was answered", code="batch_expired")
            for line in left():
                write(line, late.status, late.as_openai())

        try:
            async with asyncio.timeout(max(0.0, record.expires_at - time.time())):
                await answer_all(self.answer_line, self._disk, left(), self._slots, context_of, write)
        except TimeoutError:
            await self._disk.run(write_late)
            return True
        return False

    def _caller(self, owner: str) -> Caller:
        """The user as a caller. Raises a retryable ApiError while the user has no key."""
        if self.keys is None:
            return ANYONE
        caller = self.keys.find_user(owner)
        if caller is None:
            raise ApiError(503, "this user has no key any more", headers={"Retry-After": "10"})
        return caller

    # ---- records ----

    async def _become(self, batch_id: str, status: Status, **more: Any) -> BatchRecord:
        """Store a new status. A finished batch keeps its status; a cancelled one does not go back to running."""
        async with self._changing:
            record = self._records[batch_id]
            if record.status not in UNFINISHED or (record.status == "cancelling" and status == "in_progress"):
                return record
            return await self._disk.run(self._records.save, _changed(record, status, more))

    async def _finish(self, batch_id: str, status: Status, errors: dict[str, Any] | None = None) -> None:
        """Register the answers as files, then store the final status."""
        fields = await self._disk.run(register_answers, self.files, self._records[batch_id])
        await self._become(batch_id, status, errors=errors, **fields)

    async def _end(self, batch_id: str, status: Status, errors: dict[str, Any] | None = None) -> None:
        """Same as _finish, but ends the batch in memory if the disk fails; the next start tries again."""
        try:
            await self._finish(batch_id, status, errors)
        except Exception as error:
            LOG.error("the end of %s is not on disk: %s", batch_id, error)
            self._records.hold(_changed(self._records[batch_id], status, {"errors": errors}))

    async def _mend(self, file: FileRecord) -> bool:
        """Have the damaged lines of a file of answers answered again. Returns whether that is under way."""
        record = self._records.get(file.owner, batch_of(file.id))
        if record is None or file.id not in (record.output_file_id, record.error_file_id):
            return False
        if record.status in UNFINISHED:
            return True
        if record.status != "completed" or self.files.find(record.owner, record.input_file_id) is None:
            return False
        expires_at = int(time.time()) + window_s(record.completion_window)
        update = {"status": "in_progress", "completed_at": None, "expires_at": expires_at}
        await self._disk.run(self._records.save, record.model_copy(update=update))
        self.start()
        return True


def _changed(record: BatchRecord, status: Status, more: dict[str, Any]) -> BatchRecord:
    stamp = {f"{status}_at": int(time.time())} if f"{status}_at" in BatchRecord.model_fields else {}
    return record.model_copy(update={"status": status, **stamp, **more})
