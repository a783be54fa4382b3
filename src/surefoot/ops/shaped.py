"""A program for any shape: recorded at a few shapes, replayed at others by rewriting its arguments."""

from collections.abc import Callable, Sequence
from copy import copy
from ctypes import sizeof
from typing import Any

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import I64
from surefoot.ops.backend import Backend, Program

Shape = tuple[int, ...]


class ShapeError(ValueError):
    """The program's arguments are not linear in the shape's counts."""


class ShapedProgram:
    """A program whose arguments are linear in the shape: each 64-bit word is a constant plus a multiple of each count.

    The multiples are found by recording at the largest shape and with each count halved in turn. One more recording
    checks them. All recordings must use the same arrays. Raises ShapeError otherwise: a recording that allocates arrays
    differs from the next recording of the same shape.
    """

    def __init__(self, backend: Backend, record: Callable[[Shape], Program], largest: Shape) -> None:
        self._backend = backend
        self.largest = largest
        self._first = record(largest)  # keeps its arrays alive
        self._words = _words(self._first)
        self._calls = _calls(self._first, self._words)
        if (_words_like(self._first, record(largest)) != self._words).any():
            raise ShapeError("the recording makes arrays of its own")
        slopes = [self._slope(record, number) for number in range(len(largest))]
        indices = np.flatnonzero(np.any(slopes, axis=0))
        self._indices, self._slopes = indices, np.stack(slopes)[:, indices].T.copy()  # words that depend on the shape
        self._constants = self._words[indices] - self._slopes @ np.array(largest)
        self._check(record)
        self._shape = largest  # of the current words

    def run(self, shape: Shape) -> None:
        if shape != self._shape:
            self._words[self._indices] = self._varying(shape)
            self._shape = shape
        self._backend.replay(self._calls)

    def beginning(self, record: Callable[[Shape], Program], shape: Shape) -> "ShapedProgram":
        """The part of this program that `record(shape)` records. Raises ShapeError unless it is the program's
        beginning."""
        recorded = record(shape)
        words = _words(recorded)
        ops, all_ops = [op for op, _ in recorded.calls], [op for op, _ in self._first.calls]
        if ops != all_ops[: len(ops)] or (words != self._at(shape)[: len(words)]).any():
            raise ShapeError("not the beginning of the program")
        part = copy(self)
        part._words, part._shape = words, shape
        part._calls = _calls(recorded, words)
        inside = self._indices < len(words)
        part._indices, part._slopes, part._constants = (
            array[inside] for array in (self._indices, self._slopes, self._constants)
        )
        return part

    def _at(self, shape: Shape) -> I64:
        """All words at this shape."""
        words = self._words.copy()
        words[self._indices] = self._varying(shape)
        return words

    def _varying(self, shape: Shape) -> I64:
        """The words that depend on the shape, at this shape."""
        values: I64 = self._constants + self._slopes @ np.array(shape)
        return values

    def _slope(self, record: Callable[[Shape], Program], number: int) -> I64:
        """The change of each word per unit of this count."""
        halved = _part(self.largest, 2, [number])
        step = self.largest[number] - halved[number]
        if not step:
            return np.zeros_like(self._words)
        slope, rest = np.divmod(self._words - _words_like(self._first, record(halved)), step)
        if rest.any():
            raise ShapeError("an argument grows by steps")
        return slope

    def _check(self, record: Callable[[Shape], Program]) -> None:
        shape = third_of(self.largest)
        if (self._at(shape) != _words_like(self._first, record(shape))).any():
            raise ShapeError("an argument is no sum of multiples of the counts")


def third_of(shape: Shape) -> Shape:
    return _part(shape, 3, range(len(shape)))


def _part(shape: Shape, divisor: int, numbers: Sequence[int]) -> Shape:
    """The shape with these counts divided, but not below 2: arrays of one row have other strides."""
    return tuple(min(size, max(2, size // divisor)) if i in numbers else size for i, size in enumerate(shape))


def _words(program: Program) -> I64:
    return np.concatenate([np.frombuffer(memoryview(args), np.int64) for _, args in program.calls])


def _words_like(first: Program, other: Program) -> I64:
    if [op for op, _ in first.calls] != [op for op, _ in other.calls]:
        raise ShapeError("other operations at another shape")
    return _words(other)


def _calls(program: Program, words: I64) -> Any:
    """The program's calls with the words as their arguments."""
    calls, address = [], words.ctypes.data
    for op, args in program.calls:
        calls.append(abi.Call(op, 0, address))
        address += sizeof(args)
    return (abi.Call * len(calls))(*calls)
