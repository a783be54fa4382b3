"""A batch's input and answers on disk. All of this may wait for the disk, so it runs on the disk's threads."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.server.batch.answer_file import AnswerFile
from surefoot.server.batch.files import Files
from surefoot.server.batch.input_lines import BatchLine, read_lines
from surefoot.server.batch.lines import DONE
from surefoot.server.errors import bad_request
from surefoot.server.schemas.batches import BatchRecord, Counts

MOST_LINES = 50_000


class BatchAnswers:
    """A batch's answers in two files: one for status 200, one for errors. A line is in at most one of them."""

    def __init__(self, files: Files, batch_id: str, ids: Mapping[str, str]) -> None:
        good, bad = map(files.path, answer_ids(batch_id))
        self.num_lines = len(ids)
        self.good = AnswerFile(good, ids)
        try:
            self.bad = AnswerFile(bad, ids, elsewhere=self.good.done)
        except BaseException:
            self.good.close()
            raise

    def __contains__(self, custom_id: str) -> bool:
        return custom_id in self.good.done or custom_id in self.bad.done

    @property
    def num_bytes(self) -> int:
        return self.good.num_bytes + self.bad.num_bytes

    @property
    def counts(self) -> Counts:
        return Counts(total=self.num_lines, completed=len(self.good.done), failed=len(self.bad.done))

    def write(self, line: BatchLine, status: int, body: dict[str, Any]) -> None:
        (self.good if status == DONE else self.bad).write(line, status, body)

    def sync(self) -> None:
        self.good.sync()
        self.bad.sync()

    def close(self) -> None:
        self.good.close()
        self.bad.close()


def answer_ids(batch_id: str) -> tuple[str, str]:
    """The ids of the files of a batch's answers, which follow from its own id."""
    name = batch_id.removeprefix("batch_")
    return f"file-{name}o", f"file-{name}e"


def batch_of(file_id: str) -> str:
    """The id of the batch that a file of answers belongs to."""
    return f"batch_{file_id.removeprefix('file-')[:-1]}"


def read_ids(files: Files, record: BatchRecord) -> dict[str, str]:
    """The lines' ids by custom_id. Raises ApiError if the input file cannot be run as a batch."""
    try:
        return _checked_ids(files, record)
    except ValueError as error:
        raise bad_request(str(error), code="invalid_file") from None


def _checked_ids(files: Files, record: BatchRecord) -> dict[str, str]:
    source = files.find(record.owner, record.input_file_id)
    if source is None:
        raise ValueError("the input file is gone")
    if not files.is_sound(source):
        raise ValueError("the input file was damaged on the server's disk: upload it again")
    ids: dict[str, str] = {}
    for line in read_lines(files.path(source.id)):
        if line.content.get("url") != record.endpoint:
            raise ValueError(f"line {line.number} has another url than the batch's endpoint {record.endpoint}")
        ids[line.custom_id] = line.id
        if len(ids) > MOST_LINES:
            raise ValueError(f"the file has more than {MOST_LINES} lines: make several batches of it")
    if not ids:
        raise ValueError("the file has no lines")
    return ids


def register_answers(files: Files, record: BatchRecord) -> dict[str, Any]:
    """Make the answers files of the user's. Returns fields of the batch's record. Safe to repeat after a kill."""
    fields: dict[str, Any] = {}
    nums = []
    for name, file_id in zip(("output", "error"), answer_ids(record.id), strict=True):
        path = files.path(file_id)
        nums.append(_sync_and_count(path) if path.exists() else 0)
        if nums[-1]:
            files.register(record.owner, file_id, f"{record.id}_{name}.jsonl", "batch_output")
            fields[f"{name}_file_id"] = file_id
        else:
            path.unlink(missing_ok=True)
    completed, failed = nums
    total = max(record.request_counts.total, completed + failed)
    return {**fields, "request_counts": Counts(total=total, completed=completed, failed=failed)}


def _sync_and_count(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return sum(1 for _ in file)
