"""What other processes may do with a folder that a process uses: look, and ask it to forget a user."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from surefoot.disk_cache.index import INDEX_ERRORS, NAME, Holdings, read_holdings
from surefoot.disk_cache.segments import SUFFIX

POLL_S = 0.1
REQUESTS = "forget"  # a folder of empty files, each named after a namespace


@dataclass(frozen=True)
class Contents:
    """Of a folder, as its index was written last: at most a few seconds ago."""

    holdings: list[Holdings]
    facts: dict[str, str]
    total_bytes: int


def read_contents(folder: Path) -> Contents:
    """Raises OSError."""
    try:
        with closing(sqlite3.connect(f"{(folder / NAME).absolute().as_uri()}?mode=rw", uri=True)) as index:
            index.execute("PRAGMA query_only = ON")
            holdings = read_holdings(index)
            facts = dict(index.execute("SELECT name, value FROM facts"))
    except INDEX_ERRORS as error:
        raise OSError(f"the index of the cache in {folder} cannot be read: {error}") from None
    return Contents(holdings, facts, sum(file.stat().st_size for file in folder.glob(f"*{SUFFIX}")))


def ask_to_forget(folder: Path, namespace: bytes) -> Path:
    """Returns a file that the process which uses the folder removes once it has forgotten the namespace."""
    requests = folder / REQUESTS
    requests.mkdir(mode=0o700, exist_ok=True)
    file = requests / namespace.hex()
    file.touch(0o600)
    return file


def is_forgotten(request: Path, seconds: float) -> bool:
    """Waits until the process that uses the folder has heeded the request, but no longer than this."""
    end = time.monotonic() + seconds
    while request.exists():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def asked_namespaces(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Those that are to be forgotten, each with the file to remove afterwards."""
    with suppress(OSError):
        for name in os.listdir(folder / REQUESTS):
            with suppress(ValueError):
                yield folder / REQUESTS / name, bytes.fromhex(name)
