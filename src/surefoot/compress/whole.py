"""Files that are there whole or not at all, whatever stops the one who writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot.compress.later import CompressError


def check_place(path: Path) -> None:
    """Before hours of work for it."""
    if path.is_dir() or not path.parent.is_dir():
        raise CompressError(f"{path} cannot be written: name a file in a folder that is there")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place beside it to write to, which takes its name at the end; if that is not reached, nothing is left."""
    beside = path.with_name(path.name + ".partial")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
