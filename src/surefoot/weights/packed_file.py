"""Reads and writes files of matrices packed for the kernels.

    magic and the matrices, each at a multiple of 64; an index in JSON; its CRC-32 (4 bytes) and its length (8)

The index has a CRC-32 of every STEP bytes before it, so that corruption on disk is detected and the file ignored.
CRCs do not detect forgery, so only the owner may have write permission.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot.machine.own_folder import check_owner, own_folder
from surefoot.ops.arrays import ALIGNMENT, U8, huge_empty
from surefoot.ops.backend import Backend
from surefoot.ops.weights import PackedWeights, WeightFormat, place
from surefoot.weights.background_writes import Pace, at_once
from surefoot.weights.cache_folder import make_room, unfinished
from surefoot.weights.checkpoint import Report

LAYOUT = "SFPACK3"  # as native/kernels/pack.h names it
MAGIC = b"surefoot packed 2\n".ljust(ALIGNMENT, b"\0")
STEP = 1 << 23  # bytes that one thread reads at a time
AHEAD = 8 * STEP  # bytes that are asked of the disk early, where the system's copies of them are dropped
PIECE = 1 << 20  # bytes that are written at a time; a divisor of STEP
TAIL = 12  # bytes: the index's CRC-32 and length
MAX_INDEX_BYTES = 1 << 28
Runs = list[list[PackedWeights]]  # matrices fused by format; the inner list has one per expert


class DamagedFile(ValueError):
    """The file differs from what was written."""


# ---- reading ----


def read_packed(path: Path, report: Report, backend: Backend | None = None) -> dict[str, Runs]:
    """The matrices by key, placed for the backend. Raises OSError, ValueError, KeyError or TypeError if the file is
    absent, damaged, or not this user's."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(file)
        check_owner(facts, path)
        index = _read_index(file, facts.st_size)
        data = huge_empty(index["nbytes"])
        is_placed = backend is not None and backend.pages.are_placed
        if backend is not None and is_placed:
            for entry in _matrices(index):
                place(backend, entry["n"], _bytes(data, entry))
        _read_data(file, data, index["sums"], report, is_kept=not is_placed)
    finally:
        os.close(file)
    return {key: [[_packed(data, entry) for entry in run] for run in runs] for key, runs in index["runs"].items()}


def _read_index(file: int, size: int) -> dict[str, Any]:
    tail = os.pread(file, TAIL, max(0, size - TAIL))
    total, length = int.from_bytes(tail[:4], "little"), int.from_bytes(tail[4:], "little")
    start = size - TAIL - length
    if len(tail) < TAIL or length > MAX_INDEX_BYTES or start < 0:
        raise DamagedFile("its end is missing")
    text = os.pread(file, length, start)
    if zlib.crc32(text) != total or os.pread(file, len(MAGIC), 0) != MAGIC:
        raise DamagedFile("its index has changed")
    index: dict[str, Any] = json.loads(text)
    if index["nbytes"] != start:
        raise DamagedFile("its length has changed")
    return index


def _matrices(index: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The index's entries."""
    return (entry for runs in index["runs"].values() for run in runs for entry in run)


def _read_data(file: int, data: U8, sums: Sequence[int], report: Report, is_kept: bool) -> None:
    """Fills the array. is_kept: the system keeps its copies of the file, for another load. Otherwise they could fill
    one NUMA node, and matrices would go to another."""
    view, nbytes = data.data, data.nbytes

    def fill(first: int) -> int:
        at, end = first, min(first + STEP, nbytes)
        if not is_kept:
            os.posix_fadvise(file, first + AHEAD, STEP, os.POSIX_FADV_WILLNEED)
        while at < end:
            num_read = os.preadv(file, [view[at:end]], at)
            if not num_read:
                raise DamagedFile("it is too short")
            at += num_read
        if not is_kept:
            os.posix_fadvise(file, first, end - first, os.POSIX_FADV_DONTNEED)
        return zlib.crc32(view[first:end])

    os.posix_fadvise(file, 0, nbytes if is_kept else AHEAD, os.POSIX_FADV_WILLNEED)
    starts = range(0, nbytes, STEP)
    with ThreadPoolExecutor(2) as pool:
        for number, (expected, actual) in enumerate(zip(sums, pool.map(fill, starts), strict=True), 1):
            if actual != expected:
                raise DamagedFile("its content has changed")
            report(min(number * STEP, nbytes), nbytes)


def _bytes(data: U8, entry: Mapping[str, Any]) -> U8:
    return data[entry["at"] : entry["at"] + entry["nbytes"]]


def _packed(data: U8, entry: Mapping[str, Any]) -> PackedWeights:
    part = _bytes(data, entry)
    if bytes(part[:7]) != LAYOUT.encode() or part.nbytes != entry["nbytes"]:
        raise DamagedFile("not a packed matrix")
    return PackedWeights(WeightFormat(**entry["format"]), entry["n"], entry["k"], part)


# ---- writing ----


def write_packed(path: Path, runs: Mapping[str, Runs], pace: Pace = at_once) -> None:
    """Writes the file atomically; writes nothing if it would exceed the folder's limit. Raises OSError."""
    entries, matrices, nbytes = _entries(runs)
    if not make_room(own_folder(path.parent), nbytes):
        return
    with unfinished(path) as (file, temporary):
        sums = _write_data(file, matrices, pace)
        text = json.dumps({"nbytes": nbytes, "sums": sums, "runs": entries}).encode()
        _write_all(file, text + zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(8, "little"))
        os.fdatasync(file)
        temporary.replace(path)


def _write_data(file: int, matrices: Sequence[PackedWeights], pace: Pace) -> list[int]:
    """Writes the bytes before the index, and returns the CRC-32 of every STEP bytes."""
    sums: list[int] = []
    at = 0
    for piece in _pieces(matrices):
        if at % STEP == 0:
            sums.append(0)
        _write_all(file, piece)
        sums[-1] = zlib.crc32(piece, sums[-1])
        at += len(piece)
        pace(file, len(piece))
    return sums


def _pieces(matrices: Sequence[PackedWeights]) -> Iterator[bytes | memoryview]:
    """The bytes before the index, in pieces that never cross a multiple of STEP. Matrices are not copied: a copy would
    hold the GIL."""
    yield MAGIC
    at = len(MAGIC)
    for matrix in matrices:
        if gap := -at % ALIGNMENT:
            yield bytes(gap)
            at += gap
        view, done = matrix.data.data, 0
        while done < matrix.nbytes:
            length = min(PIECE - at % PIECE, matrix.nbytes - done)
            yield view[done : done + length]
            done, at = done + length, at + length


def _write_all(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _entries(runs: Mapping[str, Runs]) -> tuple[dict[str, Any], list[PackedWeights], int]:
    """The index's entries, the matrices in the order of the file, and the end of the last matrix."""
    matrices, at, entries = list[PackedWeights](), len(MAGIC), dict[str, Any]()
    for key, lists in runs.items():
        entries[key] = []
        for run in lists:
            entries[key].append([])
            for matrix in run:
                at = -(-at // ALIGNMENT) * ALIGNMENT
                entries[key][-1].append(_entry(matrix, at))
                matrices.append(matrix)
                at += matrix.nbytes
    return entries, matrices, at


def _entry(matrix: PackedWeights, at: int) -> dict[str, Any]:
    return {"format": asdict(matrix.format), "n": matrix.n, "k": matrix.k, "at": at, "nbytes": matrix.nbytes}
