"""Folders that no other user may write to."""

import os
import stat
from pathlib import Path


class UnsafeFolder(OSError):
    """Another user could put files into the folder."""


def own_folder(folder: Path) -> Path:
    """The folder, created if it does not exist. Raises OSError if it cannot be used, or other users may write to it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_owner(folder.stat(), folder)
    return folder


def check_owner(facts: os.stat_result, path: Path) -> None:
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o022:
        raise UnsafeFolder(f"{path} belongs to another user, or others may write to it")
