"""Reads safetensors files, memory-mapped: a JSON header and raw little-endian arrays.

Every length and offset is checked against the file's length before it is used. The parser is our own because the
package's numpy interface has no bfloat16.
"""

import json
import math
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.core.model_files import check_depth, open_regular
from surefoot.ops.arrays import F32, Array

# numpy has no bfloat16: its bits are the upper half of a float32's. Nor has it 8-bit floats.
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "BOOL": "u1",
}  # fmt: skip
MAX_HEADER_BYTES = 32 << 20  # 200,000 tensors; parsed JSON takes up to twenty times its text
MAX_DIMENSIONS, MAX_VALUES = 8, 1 << 48


class SafetensorsError(ValueError):
    """A safetensors file or checkpoint cannot be read. The message says what is wrong."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a mapped file."""

    name: str  # in the file
    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]  # as stored
    data: mmap.mmap  # the file
    offset: int  # from the start of the file

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(DTYPES[self.dtype]).itemsize

    def array(self) -> Array:
        """The values as stored; bfloat16 as uint16."""
        count = math.prod(self.shape)
        return np.frombuffer(self.data, DTYPES[self.dtype], count, self.offset).reshape(self.shape)

    def floats(self, rows: slice = slice(None)) -> F32:
        if self.dtype.startswith("F8"):
            raise SafetensorsError(f"{self.name}: {self.dtype} without a scale: the checkpoint's scheme is not known")
        stored = self.array()[rows] if self.shape else self.array()
        values = (
            (stored.astype(np.uint32) << 16).view(np.float32) if self.dtype == "BF16" else stored.astype(np.float32)
        )
        if self.shape:
            self._release(*rows.indices(self.shape[0])[:2])
        return values

    def _release(self, start: int, stop: int) -> None:
        """Releases the rows' pages: they stay in the system's cache, but no longer count as this process's memory."""
        row_bytes = self.nbytes // max(self.shape[0], 1)
        first, last = self.offset + start * row_bytes, self.offset + stop * row_bytes
        page = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        if page < last:
            self.data.madvise(mmap.MADV_DONTNEED, page, last - page)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, by name."""
    with open_regular(path) as file:
        if not os.fstat(file.fileno()).st_size:
            raise SafetensorsError(f"{path} is empty: fetch it again")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        start, header = _header(data)
        tensors = {name: _tensor(data, start, name, entry) for name, entry in header.items() if name != "__metadata__"}
        _check_apart(tensors.values())
        return tensors
    except (ValueError, RecursionError) as wrong:
        raise SafetensorsError(f"{path}: {wrong}; the file is damaged or not safetensors: fetch it again") from None


def is_header_whole(path: Path) -> bool:
    """Whether the file is long enough to hold its header."""
    with open_regular(path) as file:
        length = file.read(8)
        return len(length) == 8 and os.fstat(file.fileno()).st_size >= 8 + int.from_bytes(length, "little")


def _header(data: mmap.mmap) -> tuple[int, dict[str, Any]]:
    """The offset of the tensors' bytes, and the header's entries by name."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, MAX_HEADER_BYTES):
        raise SafetensorsError(f"a header of {size} bytes in a file of {len(data)}")
    text = data[8 : 8 + size]
    check_depth(text, "the header")
    header = json.loads(text, object_pairs_hook=_without_duplicates)
    if not isinstance(header, dict):
        raise SafetensorsError("the header is no JSON object")
    return 8 + size, header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise SafetensorsError("a name occurs twice in the header")
    return entries


def _tensor(data: mmap.mmap, first: int, name: str, entry: Any) -> StoredTensor:
    start, end, shape, dtype = _entry(name, entry)
    if not all(type(number) is int and number >= 0 for number in (start, end, *shape)):
        raise SafetensorsError(f"{name}: its shape or data_offsets are not whole numbers from 0 on")
    # Lengths count in an empty array too: numpy must be able to multiply them.
    if len(shape) > MAX_DIMENSIONS or math.prod(max(length, 1) for length in shape) > MAX_VALUES:
        raise SafetensorsError(f"{name}: a shape of {len(shape)} dimensions that is too large for any file")
    if dtype not in DTYPES:
        raise SafetensorsError(f"{name}: values of type {dtype!r} are unknown")
    if end > len(data) - first or end - start != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
        raise SafetensorsError(f"{name}: {dtype} {shape} does not lie at {start} to {end} of {len(data) - first} bytes")
    return StoredTensor(name, dtype, shape, data, first + start)


def _entry(name: str, entry: Any) -> tuple[Any, Any, tuple[Any, ...], str]:
    match entry:
        case {"data_offsets": [start, end], "shape": [*shape], "dtype": str(dtype)}:
            return start, end, tuple(shape), dtype
    raise SafetensorsError(f"{name}: an entry without data_offsets, shape and dtype")


def _check_apart(tensors: Iterable[StoredTensor]) -> None:
    """Refuses tensors that overlap, so that their total size is at most the file's."""
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset < end:
            raise SafetensorsError(f"{tensor.name} overlaps another tensor")
        end = tensor.offset + tensor.nbytes
