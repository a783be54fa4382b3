"""Segments: large files to which records are appended, and which are removed whole."""

import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from surefoot.disk_cache.record import HEADER_BYTES, DamagedRecord, RecordHeader, read_header

SUFFIX = ".blocks"
LOCK = "lock"  # the name of the file that the process which uses a folder has locked
MAX_OPEN = 32  # segments kept open for reading
SYNC_BYTES = 8 << 20  # after which bytes go to the disk, so that a slow disk never has many of them to catch up with


class TornWrite(OSError):
    """Less was written than asked for."""


class SegmentFiles:
    """The segments of one folder, by number. Safe for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._readers: OrderedDict[int, int] = OrderedDict()  # descriptors, the last used at the end
        self._writer = -1
        self._open = 0  # the segment that is appended to
        self._torn: set[int] = set()  # segments that end in a torn record, after which nothing would be found
        self._num_unsynced = 0
        self.sizes: dict[int, int] = {}
        for path in folder.glob(f"*{SUFFIX}"):
            if path.stem.isdigit():
                self.sizes[int(path.stem)] = path.stat().st_size
        self._newest = self.last  # a process uses no number again: a reader may have looked a block up there

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def last(self) -> int:
        """The number of the newest segment; 0 if there is none."""
        return max(self.sizes, default=0)

    # ---- reading ----

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Raises OSError, also if the file was removed meanwhile or has no such bytes."""
        if offset + length > self.sizes.get(number, 0):
            raise OSError(errno.ENODATA, "the segment has no such bytes")
        with self._lock:
            return os.pread(self._reader(number), length, offset)

    def will_need(self, number: int, offset: int, length: int) -> None:
        """Lets the kernel read ahead, without waiting."""
        with self._lock, suppress(OSError):
            os.posix_fadvise(self._reader(number), offset, length, os.POSIX_FADV_WILLNEED)

    def _reader(self, number: int) -> int:
        file = self._readers.get(number)
        if file is None:
            file = self._readers[number] = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if len(self._readers) > MAX_OPEN:
                os.close(self._readers.popitem(last=False)[1])
        self._readers.move_to_end(number)
        return file

    def scan(self, number: int, offset: int) -> Iterator[tuple[int, RecordHeader]]:
        """Records from an offset on, up to the first one that is torn or damaged. Raises OSError."""
        size = self.sizes[number]
        while offset + HEADER_BYTES <= size:
            try:
                header = read_header(self.read(number, offset, HEADER_BYTES))
            except DamagedRecord:
                return
            if offset + header.record_bytes > size:
                return
            yield offset, header
            offset += header.record_bytes

    # ---- writing ----

    def has_room(self, number: int, num_bytes: int, limit: int) -> bool:
        """Whether a segment exists and stays within the limit with so much more."""
        return self.sizes.get(number, limit) + num_bytes <= limit and number not in self._torn

    def open_for(self, num_bytes: int, limit: int, spared: int = 0) -> int:
        """The segment that takes the next record: the newest while it has room and is not spared, else a new one."""
        number = self.last
        if number == spared or not self.has_room(number, num_bytes, limit):
            number = self._newest = self._newest + 1
        if number != self._open:
            self._begin(number)
        return number

    def _begin(self, number: int) -> None:
        self.seal()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._writer = os.open(self._path(number), flags, 0o600)
        self._open = number
        self.sizes.setdefault(number, 0)

    def append(self, number: int, header: bytes, payload: bytes | memoryview) -> int:
        """The record's offset. After an error the segment is as it was, or takes no more records."""
        offset = self.sizes[number]
        try:
            written = os.writev(self._writer, [header, payload])
            if written != len(header) + len(payload):
                raise TornWrite("the disk is full")
        except OSError:
            self.cut(number, offset)
            raise
        self.sizes[number] = offset + written
        self._note_written(written)
        return offset

    def _note_written(self, num_bytes: int) -> None:
        self._num_unsynced += num_bytes
        if self._num_unsynced >= SYNC_BYTES:
            self._num_unsynced = 0
            os.fdatasync(self._writer)

    def cut(self, number: int, size: int) -> None:
        """Remove what follows, a torn record. If that fails too, the segment takes no more records."""
        try:
            os.truncate(self._path(number), size)
            self.sizes[number] = size
        except OSError:
            self._torn.add(number)

    def leave_alone(self, number: int) -> None:
        """The segment takes no more records."""
        self._torn.add(number)

    def sync(self) -> None:
        if self._writer >= 0:
            os.fdatasync(self._writer)

    def seal(self) -> None:
        """No more records go to the segment."""
        with suppress(OSError):
            self.sync()
        self._close_writer()

    def _close_writer(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
        self._writer, self._open = -1, 0

    def remove(self, number: int) -> None:
        if number == self._open:
            self._close_writer()
        with self._lock:
            self._path(number).unlink(missing_ok=True)
            self.sizes.pop(number, None)
            if (file := self._readers.pop(number, None)) is not None:
                os.close(file)

    def close(self) -> None:
        self.seal()
        with self._lock:
            for file in self._readers.values():
                os.close(file)
            self._readers.clear()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}{SUFFIX}"


def lock_folder(folder: Path) -> int:
    """The lock's descriptor; the lock ends with the process. Raises BlockingIOError if another process has it."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        owner = os.pread(file, 32, 0).decode(errors="replace").strip()
        os.close(file)
        raise BlockingIOError(owner) from None
    except OSError:
        os.close(file)
        raise
    return file
