"""What was private once, in a file of fixed size that forgets nothing. Whatever it cannot tell counts as private.

After a magic number and a random key the file has buckets of slots. A slot is free (zeros), or holds a digest's
name, its sensitivity and their checksum. A digest has one bucket. If that is full, all its digests count as private.
"""

import logging
import os
import secrets
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from surefoot.front.sensitivity import Privacy
from surefoot.machine.atomic_write import atomic_write

NAME = "private-marks"
MAGIC = b"surefoot private marks 1".ljust(32, b"\n")
HEAD_BYTES = 64  # the magic number and the key
SLOT = struct.Struct("<11sBI")
FREE = bytes(SLOT.size)
BUCKET_BYTES = 32 * SLOT.size
NUM_BUCKETS = 1 << 17  # 64 MiB
DIGEST_BYTES = 15  # 4 choose the bucket, 11 are the name in it
LEAST_CHARACTERS = 32  # of a message that is known wherever it stands; a shorter one only after the same messages
LOG = logging.getLogger(__name__)


class PrivateMarks:
    """Safe for threads. Raises OSError if the file cannot be made or read, ValueError if it is not whole."""

    def __init__(self, path: Path, num_buckets: int = NUM_BUCKETS) -> None:
        num_bytes = HEAD_BYTES + num_buckets * BUCKET_BYTES
        if not path.exists():
            _create(path, num_bytes)
        self._num_buckets = num_buckets
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        head = os.pread(self._file, HEAD_BYTES, 0)
        self._key = head[len(MAGIC) :]
        self._is_whole = head.startswith(MAGIC) and os.fstat(self._file).st_size == num_bytes
        if not self._is_whole:
            self.close()
            raise ValueError(f"{path} is damaged: as long as it is there, everything counts as private")

    def remember(self, messages: Sequence[str], level: Privacy) -> Privacy:
        """The most private level at which one of the messages was seen before. All are marked with it, or with the
        given level if that is more private."""
        with self._lock:
            try:
                return self._remember(messages, level)
            except (OSError, ValueError) as error:
                self._give_up(error)
                return Privacy.PRIVATE

    def sync(self) -> None:
        """Bring the marks to the disk. Until then they outlive this process, but not a power cut."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            with self._lock:
                self._give_up(error)

    def close(self) -> None:
        """After it everything is private."""
        with self._lock:
            self._is_whole = False
            os.close(self._file)

    def _remember(self, messages: Sequence[str], level: Privacy) -> Privacy:
        if not self._is_whole:
            return Privacy.PRIVATE
        known = {digest: self._find(digest)[1] for digest in self._digests(messages)}
        past = max(known.values(), default=Privacy.PUBLIC)
        for digest, before in known.items():
            if before < max(past, level):
                self._mark(digest, max(past, level))
        return past

    def _digests(self, messages: Sequence[str]) -> Iterator[bytes]:
        """One of each message: of itself if it is long enough, else of the conversation up to it."""
        beginning = self._hash()
        for text in messages:
            own = self._hash(text.encode(errors="surrogatepass")).digest()
            beginning.update(own)
            yield own if len(text) >= LEAST_CHARACTERS else beginning.copy().digest()

    def _hash(self, data: bytes = b"") -> blake2b:
        return blake2b(data, digest_size=DIGEST_BYTES, key=self._key)

    def _find(self, digest: bytes) -> tuple[int | None, Privacy]:
        """Where the digest's slot is or may be, and its level. None: its bucket is full."""
        number = int.from_bytes(digest[:4], "little") % self._num_buckets
        start = HEAD_BYTES + number * BUCKET_BYTES
        bucket = os.pread(self._file, BUCKET_BYTES, start)
        for offset in range(0, BUCKET_BYTES, SLOT.size):
            slot = bucket[offset : offset + SLOT.size]
            if slot == FREE:
                return start + offset, Privacy.PUBLIC
            if len(slot) < SLOT.size or crc32(slot[:12]) != int.from_bytes(slot[12:], "little"):
                raise ValueError("a damaged slot")
            name, level, _ = SLOT.unpack(slot)
            if name == digest[4:]:
                return start + offset, Privacy(level)
        return None, Privacy.PRIVATE

    def _mark(self, digest: bytes, level: Privacy) -> None:
        place, _ = self._find(digest)
        if place is None:
            return
        marked = digest[4:] + bytes((level,))
        slot = marked + crc32(marked).to_bytes(4, "little")
        if os.pwrite(self._file, slot, place) != len(slot):
            raise OSError("a mark was not written whole")

    def _give_up(self, error: Exception) -> None:
        """Everything is private from now on, also after a restart: a mark may be missing."""
        LOG.error("what was private cannot be remembered, so that all requests stay here: %s", error)
        self._is_whole = False
        with suppress(OSError):
            os.pwrite(self._file, bytes(len(MAGIC)), 0)


def _create(path: Path, num_bytes: int) -> None:
    """With all its room, so that a full disk fails now and no mark later."""
    with atomic_write(path) as fresh:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.posix_fallocate(descriptor, 0, num_bytes)
            file.write(MAGIC + secrets.token_bytes(HEAD_BYTES - len(MAGIC)))
