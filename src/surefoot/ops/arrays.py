"""Arrays that native code may read and write: typed, aligned, checked."""

import weakref
from ctypes import c_uint8
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.backend import load_library

F32 = NDArray[np.float32]
I8 = NDArray[np.int8]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
Array = NDArray[Any]

ALIGNMENT = 64
# Arrays of at least this size get huge pages. A tile of rows would touch 16 small pages: their page table walks cost a
# matmul of many rows a quarter of its speed.
HUGE_BYTES = 1 << 20


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """A new contiguous array that starts at a multiple of 64 bytes, in huge pages if it is large."""
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    if nbytes >= HUGE_BYTES:
        huge: Array = huge_empty(nbytes).view(dtype).reshape(shape)
        return huge
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    aligned: Array = raw[start : start + nbytes].view(dtype).reshape(shape)
    return aligned


def huge_empty(nbytes: int) -> U8:
    """Zeroed bytes, in huge pages if the system grants them. They are freed with the last array over them."""
    lib = load_library("portable")
    address = lib.sf_alloc(nbytes)
    if not address:
        raise MemoryError(f"could not reserve {nbytes} bytes")
    owner = (c_uint8 * nbytes).from_address(address)
    weakref.finalize(owner, lib.sf_free, address, nbytes).atexit = False
    return np.frombuffer(memoryview(owner), np.uint8)


class Arena:
    """Allocates many arrays next to each other in huge pages, so that no array is rounded up to whole pages.

    Each array keeps its chunk of the arena alive. The unallocated rest of a chunk is never touched: it takes no memory.
    """

    def __init__(self, chunk_bytes: int = 1 << 26) -> None:
        self._chunk_bytes = chunk_bytes
        self._rest = np.empty(0, np.uint8)

    def empty(self, nbytes: int) -> U8:
        """Zeroed bytes that start at a multiple of 64."""
        if nbytes > len(self._rest):
            self._rest = huge_empty(max(nbytes, self._chunk_bytes))
        array, self._rest = self._rest[:nbytes], self._rest[-(-nbytes // ALIGNMENT) * ALIGNMENT :]
        return array


def pointer(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data


def check(name: str, array: Array, dtype: Any, *shape: int | None) -> None:
    """Raises unless the array has this type and shape (None: any length) and its last axis is contiguous."""
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")
    wrong = array.ndim != len(shape) or any(
        want is not None and want != have for want, have in zip(shape, array.shape, strict=False)
    )
    if wrong:
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}")
    if array.size and array.strides[-1] != array.itemsize:
        raise ValueError(f"{name} must be contiguous in its last axis")


def row_stride(array: Array) -> int:
    """Elements from one row of a 2-D array to the next."""
    return array.strides[0] // array.itemsize if array.shape[0] > 1 else array.shape[1]


def head_stride(x: F32) -> int:
    """Elements from one row of [rows, heads, dims] to the next; the heads of a row must be contiguous."""
    rows, heads, dims = x.shape
    if x.size and heads > 1 and x.strides[1] != dims * x.itemsize:
        raise ValueError("the heads of a row must be contiguous")
    return x.strides[0] // x.itemsize if rows > 1 else heads * dims
