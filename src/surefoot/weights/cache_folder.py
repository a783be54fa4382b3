"""The folder of cached packed weights: only this user may write to it, and it takes at most a share of the disk."""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX, UNFINISHED = ".packed", ".part"
SHARE_OF_DISK = 0.25  # of the bytes that the cache holds and the disk has free


class UnsafeFolder(OSError):
    """Another user could put weights into the folder."""


def own_folder(folder: Path) -> Path:
    """The folder, created if it does not exist. Raises OSError if it cannot be used, or other users may write to it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_owner(folder.stat(), folder)
    return folder


def check_owner(facts: os.stat_result, path: Path) -> None:
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o022:
        raise UnsafeFolder(f"{path} belongs to another user, or others may write to it")


def make_room(folder: Path, nbytes: int) -> bool:
    """Whether `nbytes` may be added. Evicts the least recently used files as needed."""
    remove_unfinished(folder)
    cached = sorted((file.stat().st_mtime_ns, file.stat().st_size, file) for file in folder.glob(f"*{SUFFIX}"))
    held = sum(size for _, size, _ in cached)
    limit = int((held + shutil.disk_usage(folder).free) * SHARE_OF_DISK)
    if nbytes > limit:
        return False
    for _, size, file in cached:
        if held + nbytes <= limit:
            break
        file.unlink(missing_ok=True)
        held -= size
    return True


def note_use(file: Path) -> None:
    with suppress(OSError):
        os.utime(file)


@contextmanager
def unfinished(path: Path) -> Iterator[tuple[int, Path]]:
    """A new file beside `path`: its descriptor and name. On exit it is removed if it still has that name.

    It is locked, which ends with the process: that is how `remove_unfinished` knows files that nobody writes.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file, beside
    finally:
        beside.unlink(missing_ok=True)
        os.close(file)


def remove_unfinished(folder: Path) -> None:
    """Removes files that a killed process has left incomplete."""
    for path in folder.glob(f"*{UNFINISHED}"):
        with suppress(OSError):  # another process writes it, or has removed it
            _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)
