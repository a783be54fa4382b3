"""The folder for the server's files and batches, and how much of the disk it may take."""

import errno
import fcntl
import functools
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from surefoot.machine.atomic_write import sync_folder
from surefoot.server.batch.disk import Disk
from surefoot.server.batch.records import Records
from surefoot.server.errors import ApiError
from surefoot.server.schemas.batches import BatchRecord, FileRecord, errors_of

T = TypeVar("T")
SHARE_OF_DISK = 0.1  # of the free space and the state's own
LOCK = "lock"  # the name of the file that a server locks
LOG = logging.getLogger(__name__)


class StateFolder:
    """Records of files and batches, and the files themselves, in a folder that one server locks.

    Raises OSError if it cannot be used, or if another server uses it.
    """

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        """max_bytes: of all files and answers; by default a tenth of the disk's free space."""
        self.disk = Disk()
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (path / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._open(path, max_bytes)
        except BlockingIOError:
            self._lock.close()
            raise OSError(
                f"{path} is in use by another server: give this one another folder with --state-dir"
            ) from None
        except BaseException:
            self._lock.close()
            raise

    def _open(self, path: Path, max_bytes: int | None) -> None:
        self.path = path / "state-2"  # the number changes with the files' format
        self.path.mkdir(exist_ok=True, mode=0o700)
        self.files = Records(self.path / "files", FileRecord)
        self.batches = Records(self.path / "batches", BatchRecord, _unreadable)
        for folder in (self.path, path, path.parent):
            sync_folder(folder)
        self.max_bytes = max_bytes if max_bytes is not None else _measured_room(self.path)

    def close(self) -> None:
        self.disk.close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # also for copies in a program that is just being started
        self._lock.close()


def state_opener(
    folder: Path | None, name: str, max_bytes: int | None, tell: Callable[[str], None]
) -> Callable[[], StateFolder | None]:
    """Opens the folder for files and batches. A folder that another server may use is opened at once; a new one is
    made by the call, so that a start that fails leaves nothing behind.

    The folder that was asked for must be usable; the default (with the name in it) is done without if it is not."""

    def place() -> Path:
        base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "surefoot"
        return (folder or base / re.sub(r"[^\w.-]", "_", name)).expanduser()

    @functools.cache
    def opened() -> StateFolder | None:
        try:
            return StateFolder(place(), max_bytes)
        except (OSError, RuntimeError) as error:
            if folder is not None:
                raise
            tell(f"files    not available ({error})")
            return None

    with suppress(RuntimeError):  # there is no home
        if (place() / LOCK).exists():
            opened()
    return opened


def _measured_room(folder: Path) -> int:
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return int((shutil.disk_usage(folder).free + held) * SHARE_OF_DISK)


def _unreadable(batch_id: str, owner: str, created_at: int) -> BatchRecord:
    message = "the server's record of this batch was damaged on its disk: send the batch again"
    return BatchRecord(
        id=batch_id, owner=owner, created_at=created_at, endpoint="", input_file_id="", completion_window="",
        expires_at=created_at, status="failed", failed_at=created_at, errors=errors_of("record_damaged", message),
    )  # fmt: skip


def needed(part: T | None) -> T:
    """The part, which a server without a state folder does not have."""
    if part is None:
        raise ApiError(
            501, "this server has no folder for files: start it with --state-dir FOLDER", code="no_state_dir"
        )
    return part


def cause_of(error: BaseException) -> str:
    """The cause in words that do not show the server's paths."""
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    return (error.strerror if isinstance(error, OSError) else None) or "the disk failed"


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn errors of the disk into errors for the client."""
    try:
        yield
    except (OSError, MemoryError) as error:
        LOG.error("the state folder failed: %s", error)
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"the server could not keep this ({cause_of(error)}): try again later, or tell its operator"
        raise ApiError(
            507 if is_full else 503, message, code="storage_unavailable", headers={"Retry-After": "10"}
        ) from None
