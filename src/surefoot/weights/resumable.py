"""Resumable download of one large file, checked by its SHA-256.

Written by hand because huggingface_hub starts a file again after its process was killed: on a slow line a file of 17 GB
would never arrive.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

PART = ".part"
BUFFER_BYTES = 1 << 20
PAUSE_S = 1.0  # after a connection that broke
MAX_FAILURES = 5  # in a row, without a byte received between them

# Opens a stream of the file's bytes from an offset on. Raises OSError if the connection fails.
OpenAt = Callable[[int], AbstractContextManager[Iterable[bytes]]]
Report = Callable[[int], None]  # called with the number of bytes that were added


class ChecksumError(OSError):
    """The bytes received are not the file. They are removed."""


@dataclass(frozen=True)
class RemoteFile:
    name: str  # in messages
    nbytes: int
    sha256: str


def download(file: RemoteFile, open_at: OpenAt, path: Path, report: Report = lambda _: None) -> None:
    """Write the file to `path`. Until it is complete, its bytes are in a part file beside it, which survives a kill."""
    part = path.with_name(path.name + PART)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(part) as out:
        if path.exists():  # another process completed it while this one waited for the lock
            part.unlink()
            return
        digest = _digest_of(out, file.nbytes, report)
        _receive(open_at, out, file.nbytes, digest, report)
        if out.tell() != file.nbytes or digest.hexdigest() != file.sha256:
            part.unlink()
            raise ChecksumError(
                f"{file.name}: what was received has {out.tell()} bytes and SHA-256 {digest.hexdigest()}, not "
                f"{file.nbytes} and {file.sha256}: it was discarded. Fetch it again; if this repeats, the hub, its "
                "mirror or a proxy alters the file"
            )
        out.flush()
        os.fsync(out.fileno())
        part.rename(path)


@contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """The part file, locked. A process that waited may hold the lock of a file that was renamed or removed meanwhile:
    then it opens the part file again."""
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "r+b") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            if part.exists() and os.path.samestat(os.fstat(out.fileno()), part.stat()):
                yield out
                return


def _digest_of(out: BinaryIO, limit: int, report: Report) -> "hashlib._Hash":
    """Hash of the bytes that an earlier download has left. Leaves the file at its end."""
    if os.fstat(out.fileno()).st_size > limit:
        out.truncate(0)
    digest = hashlib.sha256()
    while data := out.read(BUFFER_BYTES):
        digest.update(data)
        report(len(data))
    return digest


def _receive(open_at: OpenAt, out: BinaryIO, nbytes: int, digest: "hashlib._Hash", report: Report) -> None:
    """Append the missing bytes. A connection that breaks is opened again from the last byte received."""
    failures = 0
    while (start := out.tell()) < nbytes:
        try:
            with open_at(start) as stream:
                for data in stream:
                    out.write(data)
                    digest.update(data)
                    report(len(data))
        except OSError:
            if failures == MAX_FAILURES:
                raise
            time.sleep(PAUSE_S)
        failures = failures + 1 if out.tell() == start else 0
        if failures > MAX_FAILURES:
            raise OSError("the hub closes the connection without sending anything")
