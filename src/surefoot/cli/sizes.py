"""Sizes in bytes as people write them."""

import typer

from surefoot.machine.sizes import size_bytes


def parse_size(text: str) -> int:
    """20GB, 512MiB, 1.5T or a number of bytes. Raises BadParameter."""
    try:
        return size_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def format_size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
