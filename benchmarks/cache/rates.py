"""How fast this machine copies, checks, writes and reads bytes, measured beside the cache that does all four."""

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.runner import KvStore

PROBE_BYTES = 32 << 20
CHUNK_BYTES = 1 << 20
TRIES = 3


@dataclass(frozen=True)
class ByteRates:
    """Bytes a second."""

    copy: float  # out of the KV arrays
    checksum: float
    write: float  # into the page cache
    read: float  # from the disk

    @property
    def up_s(self) -> float:
        """Seconds for a byte on its way up: reading, checking and copying follow each other."""
        return 1 / self.read + 1 / self.checksum + 1 / self.copy

    @property
    def down_s(self) -> float:
        """Seconds of a processor for a byte on its way down."""
        return 1 / self.copy + 1 / self.checksum + 1 / self.write


def measure_rates(kv: KvStore, folder: Path) -> ByteRates:
    """The best of some tries."""
    data = np.random.default_rng(0).bytes(PROBE_BYTES)
    file = folder / "probe"
    windows = sorted(set(kv.windows.values()))
    num_blocks = max(1, min(8, CHUNK_BYTES // kv.block_bytes))
    blocks = {window: range(num_blocks) for window in windows}
    copied = num_blocks * kv.block_bytes
    copy = copied / _best(lambda: kv.read_blocks(blocks))
    checksum = CHUNK_BYTES / _best(lambda: zlib.crc32(data[:CHUNK_BYTES]))
    write = PROBE_BYTES / _best(lambda: file.write_bytes(data))
    read = PROBE_BYTES / min(_read_seconds(file) for _ in range(TRIES))
    file.unlink()
    return ByteRates(copy, checksum, write, read)


def drop_from_memory(folder: Path) -> None:
    """Asks the kernel to forget the folder's files, so that reading them reads the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_seconds(file: Path) -> float:
    drop_from_memory(file.parent)
    start = time.perf_counter()
    with file.open("rb", buffering=0) as opened:
        while opened.read(CHUNK_BYTES):
            pass
    return time.perf_counter() - start


def _best(body: Callable[[], object]) -> float:
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        body()
        times.append(time.perf_counter() - start)
    return min(times)
