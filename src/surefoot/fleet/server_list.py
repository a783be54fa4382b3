"""A file with the addresses of a fleet's servers, one a line: servers come and go while the gateway runs."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from surefoot.fleet.members import Members
from surefoot.machine.atomic_write import atomic_write

LOG = logging.getLogger(__name__)
READ_S = 1.0  # between two readings


def read_servers(file: Path) -> list[str]:
    """Empty lines and lines that begin with # are left out."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def write_servers(file: Path, urls: Sequence[str]) -> None:
    with atomic_write(file) as fresh:
        fresh.write_text("".join(f"{url}\n" for url in urls), encoding="utf-8")


async def follow_servers(file: Path, members: Members) -> None:
    """Read the file for ever. While it cannot be read, the servers stay as they are."""
    while True:
        await asyncio.sleep(READ_S)
        try:
            members.set_listed(read_servers(file))
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read: %s", file, error)
