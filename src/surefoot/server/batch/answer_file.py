"""A file of answers, one per line, from which a stopped run can be resumed.

The file is the only state. Each line has a checksum and is written when its request ends. A request with an intact line
is not run again. Damage (a torn end, a changed byte, a repeated line) is repaired when the file is opened: the damaged
lines are removed, and their requests are answered again, to the same bits.
"""

import contextlib
import fcntl
import logging
import os
import re
import threading
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from surefoot.machine.atomic_write import atomic_write, sync_folder
from surefoot.server.batch.checksummed import verified, with_checksum
from surefoot.server.batch.input_lines import BatchLine

LOG = logging.getLogger(__name__)
_BEGINNING = b'{"id": "batch_req_'
_ENDING = re.compile(rb', "checksum": "[0-9a-f]{16}"}\n\Z')


class AnswerFile:
    """Open for appending, and locked. done: the custom_ids that have a line. Its methods may be called by any thread.

    Raises ValueError for a file that holds anything but answers to these lines.
    """

    def __init__(self, path: Path, ids: Mapping[str, str], elsewhere: Container[str] = ()) -> None:
        """ids: the lines' ids by custom_id. elsewhere: custom_ids that are answered in another file."""
        self.path = path.resolve()
        self._ids, self._elsewhere = ids, elsewhere
        self.done: set[str] = set()
        self.num_bytes = 0
        self._using = threading.Lock()
        self._file = open_locked(self.path)
        try:
            if damaged := self._read():
                self._remove_damaged(damaged)
            self._cut_off_torn_end()
            sync_folder(self.path.parent)  # the file may be new
        except BaseException:
            self._file.close()
            raise

    def write(self, line: BatchLine, status: int, body: dict[str, Any]) -> None:
        """Append an answer, all or nothing. Raises OSError, after which the call may be repeated."""
        response = {"status_code": status, "request_id": line.digest[:32], "body": body}
        sealed = with_checksum({"id": line.id, "custom_id": line.custom_id, "response": response, "error": None})
        with self._using:
            if line.custom_id in self.done:
                return
            self._cut_off_torn_end()
            self._append(sealed)
            self.num_bytes += len(sealed)
            self.done.add(line.custom_id)

    def sync(self) -> None:
        """Flush all lines to disk. After an OSError the file must be closed and opened again."""
        with self._using:
            try:
                os.fsync(self._file.fileno())
            except OSError:
                # The kernel may have dropped pages that it could not write, and reports that once: rewrite the file.
                num_done = len(self.done)
                self._rewrite(range(0))
                if len(self.done) < num_done:
                    raise

    def close(self) -> None:
        with self._using:
            if not self._file.closed:
                # A child process that is just being started has copies of all descriptors. Closing ours alone would
                # leave the lock with it for a moment.
                fcntl.flock(self._file, fcntl.LOCK_UN)
                self._file.close()

    def __enter__(self) -> "AnswerFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.sync()
        except OSError:
            if kind is None:
                raise
        finally:
            self.close()

    # ---- writing ----

    def _cut_off_torn_end(self) -> None:
        """Remove the partial line of a failed write."""
        if os.fstat(self._file.fileno()).st_size != self.num_bytes:
            os.ftruncate(self._file.fileno(), self.num_bytes)

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._cut_off_torn_end()
            raise

    # ---- reading and repairing ----

    def _read(self) -> set[int]:
        """Fill `done` and `num_bytes`, up to a torn end. Returns the numbers of the lines to drop."""
        self.done, self.num_bytes, damaged, is_ours = set(), 0, set(), False
        for number, raw in enumerate(self._lines()):
            reply = verified(raw)
            is_ours = is_ours or reply is not None or _looks_like_an_answer(raw)
            if reply is None and not raw.endswith(b"\n"):
                break  # torn by a kill, which is common and harmless
            self.num_bytes += len(raw)
            if reply is None:
                damaged.add(number)
            elif self._ids.get(reply["custom_id"]) != reply["id"]:
                name = reply["custom_id"]
                raise ValueError(
                    f"{self.path} belongs to another input (see {name!r}): give another file, or remove it"
                )
            elif reply["custom_id"] in self.done or reply["custom_id"] in self._elsewhere:
                damaged.add(number)
            else:
                self.done.add(reply["custom_id"])
        if not is_ours and os.fstat(self._file.fileno()).st_size:
            raise ValueError(f"{self.path} holds something else than the output of a batch: give another file")
        return damaged

    def _lines(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            yield from file

    def _remove_damaged(self, damaged: Collection[int]) -> None:
        aside = self.path.with_name(self.path.name + ".damaged")
        with aside.open("ab") as file:
            file.writelines(raw for number, raw in enumerate(self._lines()) if number in damaged)
        LOG.warning("%d lines of %s were damaged or came twice: set aside in %s", len(damaged), self.path, aside.name)
        self._rewrite(damaged)

    def _rewrite(self, drop: Container[int]) -> None:
        """Replace the file by one with its other intact lines, locked before it becomes visible."""
        with atomic_write(self.path) as fresh:
            file = open_locked(fresh)
            try:
                file.truncate(0)
                kept = (raw for number, raw in enumerate(self._lines()) if number not in drop)
                file.writelines(raw for raw in kept if verified(raw) is not None)
                file.flush()
            except BaseException:
                file.close()
                raise
        self._file.close()
        self._file = file
        self._read()


class AnswersLocked(ValueError):
    """Another run writes to the file."""


def open_locked(path: Path) -> IO[bytes]:
    """The file, open for appending. Raises AnswersLocked, or ValueError if it is not a file."""
    if path.exists() and not path.is_file() and not path.is_dir():  # a folder cannot be opened in any case
        raise ValueError(f"{path} is not a file: name one for the answers")
    file = path.open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            raise BlockingIOError  # another run has just replaced the file
    except BlockingIOError:
        file.close()
        raise AnswersLocked(f"{path} is being written by another run: wait for its end") from None
    except BaseException:
        file.close()
        raise
    return file


def _looks_like_an_answer(raw: bytes) -> bool:
    """Whether a damaged line was an answer. A changed byte damages the beginning or the ending, not both; a torn line
    has the beginning, or zeros from the file system."""
    is_beginning = raw[: len(_BEGINNING)] == _BEGINNING[: len(raw)]
    return is_beginning or _ENDING.search(raw) is not None or not raw.strip(b"\0")
