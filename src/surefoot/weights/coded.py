"""Tensors of quantised checkpoints that keep their codes, and the unpacking of codes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from surefoot.formats import AffineGroups
from surefoot.ops.arrays import F32, I8, U8, Array
from surefoot.weights.safetensors import StoredTensor


@runtime_checkable
class Coded(Protocol):
    """A quantised matrix whose codes the kernels can use."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def floats(self, rows: slice = ...) -> F32: ...

    def groups(self) -> AffineGroups: ...


@dataclass(frozen=True)
class CodedTensor:
    """A quantised matrix, unpacked on demand."""

    shape: tuple[int, ...]  # rows, columns
    unpack: Callable[[], AffineGroups]  # returns codes and scales

    def groups(self) -> AffineGroups:
        return self.unpack()

    def floats(self, rows: slice = slice(None)) -> F32:
        return self.unpack().floats()[rows]


def matrices(stored: Mapping[str, StoredTensor], part: str) -> Iterator[str]:
    """The names of the modules that have a tensor called `part`."""
    return (name.removesuffix(f".{part}") for name in stored if name.endswith(f".{part}"))


def unpacked(words: Array, bits: int, axis: int) -> U8:
    """Codes along the axis, unpacked from 32-bit words that hold 32 / bits codes each, lowest bits first."""
    if 32 % bits:
        raise ValueError(f"codes of {bits} bits are not supported: use 2, 4 or 8")
    wide = np.moveaxis(np.ascontiguousarray(words).view(np.uint32), axis, -1)
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = (wide[..., None] >> shifts & np.uint32(2**bits - 1)).astype(np.uint8)
    return np.moveaxis(codes.reshape(*wide.shape[:-1], -1), -1, axis)


def unpacked_densely(words: Array, bits: int, axis: int) -> U8:
    """Same as `unpacked`, for any width: codes are packed without gaps and may cross the ends of words."""
    if bits in (1, 2, 4, 8):
        return unpacked(words, bits, axis)
    stream = np.ascontiguousarray(np.moveaxis(words, axis, -1)).view(np.uint8)
    all_bits = np.unpackbits(stream, axis=-1, bitorder="little")
    count = all_bits.shape[-1] // bits
    by_code = all_bits[..., : count * bits].reshape(*all_bits.shape[:-1], count, bits)
    codes = np.packbits(by_code, axis=-1, bitorder="little")[..., 0]
    return np.moveaxis(codes, -1, axis)


def with_zeros(codes: U8, bits: int, scales: F32, zeros: Array | None) -> AffineGroups:
    """Groups with values scale * (code - zero); scales and zeros are [n, groups]. zeros None: the middle code."""
    n, k = codes.shape
    middle = 2 ** (bits - 1)
    if scales.shape[0] != n or k % scales.shape[1] or (zeros is not None and zeros.shape != scales.shape):
        raise ValueError(f"scales {scales.shape} do not divide weights {n} x {k} into groups, or zeros differ in shape")
    group = k // scales.shape[1]
    offsets = None
    if zeros is not None and (zeros != middle).any():
        offsets = (middle - zeros.astype(np.float32)) * scales
    if bits == 8:
        return AffineGroups((codes ^ np.uint8(128)).view(np.int8), group, scales, offsets, None, (-127, 127))
    if bits > 4:
        return AffineGroups(codes.view(np.int8) - np.int8(middle), group, scales, offsets, None, (-middle, middle - 1))
    return AffineGroups(codes.view(np.int8), group, scales, offsets, _table(bits), (-middle, middle - 1))


def _table(bits: int) -> I8:
    """The values of codes of up to 4 bits; the middle code is 0."""
    table = np.zeros(16, np.int8)
    table[: 2**bits] = np.arange(2**bits) - 2 ** (bits - 1)
    return table
