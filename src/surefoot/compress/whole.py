"""Where an output may go."""

from pathlib import Path

from surefoot.compress.later import CompressError


def check_place(path: Path) -> None:
    """Before hours of work for it."""
    if path.is_dir() or not path.parent.is_dir():
        raise CompressError(f"{path} cannot be written: name a file in a folder that is there")
