"""Atomic writes: a file has its old content or its new content, whatever stops the writer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to. It replaces `path` at the end of the block, and is removed on an error.

    The new content is on disk before the replacement, and the replacement is on disk when the block has ended.
    """
    temporary = path.with_name(path.name + ".partial")
    try:
        yield temporary
        _sync(temporary, os.O_RDONLY)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # Outside the try block: after the replacement, another writer may own the temporary path.
    _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def sync_folder(folder: Path) -> None:
    """Writes the folder's entries to disk, if this process may read the folder."""
    with suppress(PermissionError):
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
