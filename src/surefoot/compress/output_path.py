"""Checks where an output is to be written."""

from pathlib import Path

from surefoot.compress.errors import CompressError


def check_output_path(path: Path) -> None:
    """Refuses a path that cannot be written, before hours of work for it."""
    if path.is_dir() or not path.parent.is_dir():
        raise CompressError(f"{path} cannot be written: name a file in a folder that exists")
