"""The folder of cached packed weights: only this user may write to it, and it takes at most a share of the disk."""

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

SUFFIX, UNFINISHED = ".packed", ".part"
SHARE_OF_DISK = 0.25  # of the bytes that the cache holds and the disk has free
STALE_S = 3600.0  # an unfinished file this old was left by a process that was killed


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
    _remove_unfinished(folder)
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


def _remove_unfinished(folder: Path) -> None:
    for file in folder.glob(f"*{UNFINISHED}"):
        if time.time() - file.stat().st_mtime > STALE_S:
            file.unlink(missing_ok=True)
