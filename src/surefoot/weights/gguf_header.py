"""Parses the headers of GGUF files: metadata and tensors' offsets, of one file or all shards of a model.

Every count, length, offset and type is checked against the file's length before anything is allocated for it, so a
damaged or hostile file only raises `GgufError`. The parser is our own because gguf.GGUFReader trusts the counts that it
reads, and takes 10 s for a vocabulary of 152,000 (numpy objects for each string); this parser takes 0.07 s.
"""

import errno
import math
import mmap
import os
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from surefoot.core.model_files import in_folder, open_regular
from surefoot.formats import ggml
from surefoot.ops.arrays import I64, U8
from surefoot.weights.wrong_file import HEAD_BYTES, describe_wrong_file

MAGIC, VERSIONS = b"GGUF", (2, 3)
MAX_DIMENSIONS = 4
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MAX_SHARDS = 1024  # files that are mapped at once
SHARD_NAME = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
# The smallest possible sizes in bytes of a key with its value, and of a tensor's entry.
MIN_PAIR, MIN_TENSOR = 8 + 4 + 1, 8 + 4 + 8 + 4 + 8


class GgufError(ValueError):
    """A GGUF file cannot be read. The message says what is wrong, and what to do."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's entry in the header."""

    name: str  # GGUF's name
    type: ggml.BlockType  # of its blocks
    shape: tuple[int, ...]  # in numpy's order, rows then columns; ggml has the reverse
    offset: int  # from the start of its file
    nbytes: int  # in the file
    shard: int = 0  # the number of its file

    @property
    def row_bytes(self) -> int:
        return self.shape[-1] // self.type.block * self.type.nbytes


class Strings(Sequence[str]):
    """An array of strings, read from the file on demand."""

    def __init__(self, data: mmap.mmap, starts: I64, key: str) -> None:
        self._data, self._starts, self._key = data, starts, key

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._at(start) for start in self._starts[index].tolist()]
        return self._at(int(self._starts[index]))

    def __iter__(self) -> Iterator[str]:
        """Decodes all strings from one slice, which is faster: each string ends where the length of the next begins."""
        starts = self._starts.tolist()
        if not starts:
            return iter(())
        (last,) = struct.unpack_from("<Q", self._data, starts[-1])
        ends, first = [*starts[1:], starts[-1] + 8 + last], starts[0]
        raw = self._data[first : ends[-1]]
        try:
            return iter(
                [raw[start - first + 8 : end - first].decode() for start, end in zip(starts, ends, strict=True)]
            )
        except UnicodeDecodeError:
            return map(self._at, starts)  # its error names the array

    def _at(self, start: int) -> str:
        (length,) = struct.unpack_from("<Q", self._data, start)
        return _text(self._data[start + 8 : start + 8 + length], self._key)


@dataclass
class _Cursor:
    """Reads forward through the header, checking every read against the file's end."""

    data: mmap.mmap  # the file
    at: int = 0  # the next byte to read
    size: int = field(init=False)  # of the file

    def __post_init__(self) -> None:
        self.size = len(self.data)

    def need(self, nbytes: int, what: str) -> None:
        if nbytes > self.size - self.at:
            raise GgufError(
                f"{what} at byte {self.at} needs {nbytes} bytes, but the file ends at {self.size}: "
                "it is cut short or damaged; fetch it again"
            )

    def number(self, code: str, what: str) -> Any:
        self.need(struct.calcsize("<" + code), what)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self, what: str) -> str:
        length = self.number("Q", what)
        self.need(length, what)
        self.at += length
        return _text(self.data[self.at - length : self.at], what)

    def value(self, key: str) -> Any:
        kind = self.number("I", key)
        if kind == STRING:
            return self.string(key)
        if kind == ARRAY:
            return self._array(key)
        return self.number(_scalar(kind, key), key)

    def _array(self, key: str) -> Any:
        kind, count = self.number("I", key), self.number("Q", key)
        if kind == STRING:
            return self._strings(key, count)
        # A bool's byte in the file may have any value; in numpy it must be 0 or 1.
        dtype = np.dtype("<" + _scalar(kind, key))
        self.need(count * dtype.itemsize, key)
        raw = np.dtype("u1") if dtype == np.bool_ else dtype
        values = np.frombuffer(self.data, raw, count, self.at)
        self.at += values.nbytes
        return values != 0 if dtype == np.bool_ else values

    def _strings(self, key: str, count: int) -> Strings:
        self.need(count * 8, key)
        starts, at, last, length_at = array("q"), self.at, self.size - 8, struct.Struct("<Q").unpack_from
        for _ in range(count):
            starts.append(at)
            at = at + 8 + length_at(self.data, at)[0] if at <= last else self.size + 1
            if at > self.size:
                raise GgufError(f"{key}: string {len(starts) - 1} of {count} runs past the file's end; fetch it again")
        self.at = at
        return Strings(self.data, np.array(starts, np.int64), key)


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as wrong:
        raise GgufError(f"{what[:80]}: text that is not UTF-8 ({wrong.reason}); the file is damaged") from None


def _scalar(kind: int, key: str) -> str:
    if kind not in SCALARS:
        raise GgufError(
            f"{key}: values of type {kind} are unknown (or an array of arrays); the file is damaged or too new"
        )
    return SCALARS[kind]


# ---- the header ----


@dataclass(frozen=True)
class Shard:
    """One file of a model."""

    data: mmap.mmap  # the mapped file
    metadata: dict[str, Any]  # by key
    tensors: dict[str, TensorInfo]  # by name

    @cached_property
    def bytes(self) -> U8:
        return np.frombuffer(self.data, np.uint8)


def _open_shard(path: Path) -> Shard:
    try:
        data = _map(path)
        if data[:4] != MAGIC[: len(data)]:
            raise GgufError(describe_wrong_file(path, data[:HEAD_BYTES]))
        return _read_shard(data)
    except GgufError as wrong:
        raise GgufError(f"{path}: {wrong}") from None


def _map(path: Path) -> mmap.mmap:
    try:
        with open_regular(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise GgufError("is empty: fetch it again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as wrong:
        if wrong.errno == errno.ENOMEM:
            raise MemoryError(
                f"{path} does not fit into the address space that is left: raise the limit (ulimit -v)"
            ) from None
        raise GgufError(f"cannot be read: {wrong}") from None


def is_header_whole(path: Path) -> bool:
    """Whether the file is long enough to hold its header. A damaged header is never whole."""
    try:
        _read_header(_Cursor(_map(path)))
    except GgufError:
        return False
    return True


def _read_shard(data: mmap.mmap) -> Shard:
    cursor = _Cursor(data)
    metadata, entries = _read_header(cursor)
    alignment = _alignment(metadata)
    start = -(-cursor.at // alignment) * alignment
    return Shard(data, metadata, _place(entries, start, alignment, cursor.size))


def _read_header(cursor: _Cursor) -> tuple[dict[str, Any], list[TensorInfo]]:
    """Metadata, and the tensors' entries, whose offsets are still relative to the start of the data."""
    _check_start(cursor)
    num_tensors, num_pairs = cursor.number("Q", "tensor count"), cursor.number("Q", "metadata count")
    cursor.need(num_pairs * MIN_PAIR + num_tensors * MIN_TENSOR, f"{num_pairs} values and {num_tensors} tensors")
    metadata: dict[str, Any] = {}
    for _ in range(num_pairs):
        key = cursor.string("a metadata key")
        if key in metadata:
            raise GgufError(f"{key} occurs twice in the metadata; the file is damaged")
        metadata[key] = cursor.value(key)
    return metadata, [_read_entry(cursor) for _ in range(num_tensors)]


def _check_start(cursor: _Cursor) -> None:
    cursor.need(8, "the magic and version")
    (version,) = struct.unpack_from("<I", cursor.data, 4)
    if version not in VERSIONS:
        why = "big-endian" if struct.unpack_from(">I", cursor.data, 4)[0] in VERSIONS else f"version {version}"
        raise GgufError(f"{why}: surefoot reads little-endian versions {VERSIONS}; convert it with llama.cpp's tools")
    cursor.at = 8


def _alignment(metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise GgufError(f"general.alignment must be a power of two, not {alignment!r}; the file is damaged")
    return alignment


def _read_entry(cursor: _Cursor) -> TensorInfo:
    name = cursor.string("a tensor's name")
    num_dimensions = cursor.number("I", name)
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise GgufError(f"{name} has {num_dimensions} dimensions, where 1 to {MAX_DIMENSIONS} are possible")
    shape = tuple(reversed([cursor.number("Q", name) for _ in range(num_dimensions)]))
    number, offset = cursor.number("I", name), cursor.number("Q", name)
    kind = ggml.TYPES.get(number) or ggml.WHOLE_NUMBERS.get(number)
    if kind is None:
        known = ", ".join(kind.name for kind in ggml.TYPES.values())
        raise GgufError(f"{name} has ggml type {number}, which surefoot does not read; take a file with {known}")
    if min(shape) < 1 or shape[-1] % kind.block:
        raise GgufError(f"{name} has shape {shape}, but a row of {kind.name} is one or more blocks of {kind.block}")
    return TensorInfo(name, kind, shape, offset, math.prod(shape) // kind.block * kind.nbytes)


def _place(entries: list[TensorInfo], start: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """The tensors with their offsets in the file: checked to be aligned, inside the file, and not to overlap."""
    tensors: dict[str, TensorInfo] = {}
    end = start
    for entry in sorted(entries, key=lambda entry: entry.offset):
        placed = replace(entry, offset=start + entry.offset)
        if entry.offset % alignment or placed.offset < end:
            raise GgufError(f"{entry.name} is not aligned to {alignment} bytes or overlaps the tensor before it")
        end = placed.offset + placed.nbytes
        if end > size:
            raise GgufError(f"{entry.name} ends at byte {end} of a file of {size}: it is cut short; fetch it again")
        if entry.name in tensors:
            raise GgufError(f"{entry.name} occurs twice in the file; it is damaged")
        tensors[entry.name] = placed
    return {entry.name: tensors[entry.name] for entry in entries}


# ---- shards ----


def open_shards(path: Path) -> list[Shard]:
    """All shards of a model, in order. path: any of them."""
    name = SHARD_NAME.match(path.name)
    if name is None:
        first = _open_shard(path)
        if (count := first.metadata.get("split.count", 1)) != 1:
            raise GgufError(
                f"{path}: one of {count} shards, but not named like -00001-of-{count:05}.gguf; restore its name"
            )
        return [first]
    count = int(name["count"])
    if count > MAX_SHARDS:
        raise GgufError(f"{path}: one of {count} shards, where {MAX_SHARDS} are allowed; check its name")
    paths = [path.with_name(f"{name['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    for file in paths:
        if in_folder(file.parent, file.name) is None:
            raise GgufError(f"{file}: this shard is missing; put all {count} into one folder")
    shards = [_open_shard(file) for file in paths]
    for number, (file, shard) in enumerate(zip(paths, shards, strict=True)):
        split = shard.metadata.get("split.no", 0), shard.metadata.get("split.count", 1)
        if split != (number, count):
            raise GgufError(f"{file}: says that it is shard {split[0]} of {split[1]} (counted from 0), unlike its name")
    return shards


def all_tensors(path: Path, shards: list[Shard]) -> dict[str, TensorInfo]:
    """The tensors of all shards, by name."""
    tensors: dict[str, TensorInfo] = {}
    for number, shard in enumerate(shards):
        for name, info in shard.tensors.items():
            if name in tensors:
                raise GgufError(f"{path}: {name} is in two shards; fetch the files again")
            tensors[name] = replace(info, shard=number)
    expected = shards[0].metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise GgufError(f"{path}: {len(tensors)} tensors in all shards, where {expected} are announced; fetch it again")
    return tensors
