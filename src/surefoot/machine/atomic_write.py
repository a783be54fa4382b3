"""Atomic writes: a file holds its old bytes or its new ones, whatever stops the writer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place beside it to write to, which takes its name at the end; if that is not reached, nothing is left.

    The new bytes are on disk before they take the name, and the name is on disk at the end.
    """
    beside = path.with_name(path.name + ".partial")
    try:
        yield beside
        _sync(beside, os.O_RDONLY)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # the place beside it may be another's by now


def sync_folder(folder: Path) -> None:
    """The names in it are on disk when this returns, if it may be read at all."""
    with suppress(PermissionError):
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
