"""Arrays the native side may read and write: typed, aligned, checked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I8 = NDArray[np.int8]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
Array = NDArray[Any]

ALIGNMENT = 64


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """A new contiguous array that starts at a multiple of 64 bytes."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    aligned: Array = raw[start : start + nbytes].view(dtype).reshape(shape)
    return aligned


def pointer(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data


def check(name: str, array: Array, dtype: Any, *shape: int | None) -> None:
    """Raise unless the array has this type and shape (None: any length) and its last axis is contiguous."""
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
