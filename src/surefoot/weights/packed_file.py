"""A file of packed matrices, as the kernels want them.

    magic and the matrices, each at a multiple of 64; an index in JSON; its CRC-32 (4 bytes) and its length (8)

The index has a CRC-32 for every STEP bytes of what stands before it: a byte that changed on the disk is found, and the
file is not used. It cannot be told from a file that somebody made on purpose: only the owner may write it.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot.ops.arrays import ALIGNMENT, U8, huge_empty
from surefoot.ops.weights import PackedWeights, WeightFormat
from surefoot.weights.cache_folder import UNFINISHED, check_owner, make_room
from surefoot.weights.reporting import Report

LAYOUT = "SFPACK2"  # as native/kernels/pack.h names it
MAGIC = b"surefoot packed 2\n".ljust(ALIGNMENT, b"\0")
STEP = 1 << 23  # read at a time by one thread
TAIL = 12
MOST_INDEX_BYTES = 1 << 28
Runs = list[list[PackedWeights]]


class DamagedFile(ValueError):
    """Not what was written."""


# ---- reading ----


def read_packed(place: Path, report: Report) -> dict[str, Runs]:
    """Raises OSError or ValueError (or KeyError, TypeError from its index) if it is not there, not ours or damaged."""
    file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(file)
        check_owner(facts, place)
        index = _read_index(file, facts.st_size)
        data = _read_data(file, index["nbytes"], index["sums"], report)
    finally:
        os.close(file)
    return {key: [[_packed(data, entry) for entry in run] for run in runs] for key, runs in index["runs"].items()}


def _read_index(file: int, size: int) -> dict[str, Any]:
    tail = os.pread(file, TAIL, max(0, size - TAIL))
    total, length = int.from_bytes(tail[:4], "little"), int.from_bytes(tail[4:], "little")
    start = size - TAIL - length
    if len(tail) < TAIL or length > MOST_INDEX_BYTES or start < 0:
        raise DamagedFile("its end is missing")
    text = os.pread(file, length, start)
    if zlib.crc32(text) != total or os.pread(file, len(MAGIC), 0) != MAGIC:
        raise DamagedFile("its index has changed")
    index: dict[str, Any] = json.loads(text)
    if index["nbytes"] != start:
        raise DamagedFile("its length has changed")
    return index


def _read_data(file: int, nbytes: int, sums: Sequence[int], report: Report) -> U8:
    data = huge_empty(nbytes)
    view = data.data

    def fill(first: int) -> int:
        at, end = first, min(first + STEP, nbytes)
        while at < end:
            num_read = os.preadv(file, [view[at:end]], at)
            if not num_read:
                raise DamagedFile("it is too short")
            at += num_read
        return zlib.crc32(view[first:end])

    os.posix_fadvise(file, 0, nbytes, os.POSIX_FADV_WILLNEED)
    starts = range(0, nbytes, STEP)
    with ThreadPoolExecutor(2) as pool:
        for number, (expected, found) in enumerate(zip(sums, pool.map(fill, starts), strict=True), 1):
            if found != expected:
                raise DamagedFile("its content has changed")
            report(min(number * STEP, nbytes), nbytes)
    return data


def _packed(data: U8, entry: Mapping[str, Any]) -> PackedWeights:
    part = data[entry["at"] : entry["at"] + entry["nbytes"]]
    if bytes(part[:7]) != LAYOUT.encode() or part.nbytes != entry["nbytes"]:
        raise DamagedFile("not a packed matrix")
    return PackedWeights(WeightFormat(**entry["format"]), entry["n"], entry["k"], part)


# ---- writing ----


def write_packed(place: Path, runs: Mapping[str, Runs]) -> None:
    """Whole or not at all; not at all too where the folder's bound leaves no room. Raises OSError."""
    entries, matrices, nbytes = _entries(runs)
    if not make_room(place.parent, nbytes):
        return
    beside = place.with_name(f"{place.name}.{os.getpid()}{UNFINISHED}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            sums = []
            for step in _steps(matrices):
                file.write(step)
                sums.append(zlib.crc32(step))
            text = json.dumps({"nbytes": nbytes, "sums": sums, "runs": entries}).encode()
            file.write(text + zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(8, "little"))
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _steps(matrices: Sequence[PackedWeights]) -> Iterator[bytearray]:
    """The file up to its index, STEP bytes at a time."""
    step = bytearray(MAGIC)
    for matrix in matrices:
        step += b"\0" * (-len(step) % ALIGNMENT)
        view, at = matrix.data.data, 0
        while at < matrix.nbytes:
            end = min(at + STEP - len(step), matrix.nbytes)
            step += view[at:end]
            at = end
            if len(step) == STEP:
                yield step
                step = bytearray()
    if step:
        yield step


def _entries(runs: Mapping[str, Runs]) -> tuple[dict[str, Any], list[PackedWeights], int]:
    """Where each matrix goes, all of them in that order, and where the last ends."""
    matrices, at, entries = list[PackedWeights](), len(MAGIC), dict[str, Any]()
    for key, lists in runs.items():
        entries[key] = []
        for run in lists:
            entries[key].append([])
            for one in run:
                at = -(-at // ALIGNMENT) * ALIGNMENT
                entry = {"format": asdict(one.format), "n": one.n, "k": one.k, "at": at, "nbytes": one.nbytes}
                entries[key][-1].append(entry)
                matrices.append(one)
                at += one.nbytes
    return entries, matrices, at
