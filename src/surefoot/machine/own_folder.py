"""Folders that no other user may write to, or even read."""

import os
import stat
from pathlib import Path


class UnsafeFolder(OSError):
    """Another user could put files into the folder, or read them."""


def own_folder(folder: Path) -> Path:
    """The folder, created if it does not exist. Raises OSError if it cannot be used, or other users may write to it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_owner(folder.stat(), folder)
    return folder


def private_folder(folder: Path, mark: str) -> Path:
    """As `own_folder`, closed to other users. A folder that others may read is closed if it is empty or holds the file
    `mark`: a folder with files of other programs is left alone, and UnsafeFolder raised."""
    if stat.S_IMODE(own_folder(folder).stat().st_mode) & 0o077:
        if any(folder.iterdir()) and not (folder / mark).exists():
            raise UnsafeFolder(f"other users may read {folder}, which holds other files too: name a folder of its own")
        folder.chmod(0o700)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            raise UnsafeFolder(f"other users may read {folder}, and its file system cannot forbid it")
    return folder


def check_owner(facts: os.stat_result, path: Path) -> None:
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o022:
        raise UnsafeFolder(f"{path} belongs to another user, or others may write to it")
