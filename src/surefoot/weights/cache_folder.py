"""The folder of cached packed weights: only this user may write to it, and it takes at most a share of the disk."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX, UNFINISHED = ".packed", ".part"
SHARE_OF_DISK = 0.25  # limit of the cache, as a share of cached plus free bytes


def make_room(folder: Path, nbytes: int) -> bool:
    """Whether `nbytes` may be added. Evicts the least recently used files as needed."""
    remove_unfinished(folder)
    files = sorted((file.stat().st_mtime_ns, file.stat().st_size, file) for file in folder.glob(f"*{SUFFIX}"))
    cached = sum(size for _, size, _ in files)
    limit = int((cached + shutil.disk_usage(folder).free) * SHARE_OF_DISK)
    if nbytes > limit:
        return False
    for _, size, file in files:
        if cached + nbytes <= limit:
            break
        file.unlink(missing_ok=True)
        cached -= size
    return True


def note_use(file: Path) -> None:
    """Marks the file as just used, for the eviction order."""
    with suppress(OSError):
        os.utime(file)


@contextmanager
def unfinished(path: Path) -> Iterator[tuple[int, Path]]:
    """A temporary file next to `path`: its descriptor and name. On exit it is removed if it still has that name.

    It is locked while its process lives, so `remove_unfinished` can tell that no process writes an unlocked file.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file, temporary
    finally:
        temporary.unlink(missing_ok=True)
        os.close(file)


def remove_unfinished(folder: Path) -> None:
    """Removes incomplete files of killed processes."""
    for path in folder.glob(f"*{UNFINISHED}"):
        with suppress(OSError):  # another process writes it, or has removed it
            _remove_if_unlocked(path)


def _remove_if_unlocked(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)
