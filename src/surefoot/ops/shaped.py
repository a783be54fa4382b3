"""A program for any shape: recorded at a few, replayed at all by setting the counts in its arguments."""

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
    """The program's arguments do not follow from the shape by multiplication and addition."""


class ShapedProgram:
    """Every 64-bit word of the arguments is a constant plus a multiple of each of the shape's counts.

    The multiples are found by recording: at the largest shape, and with each count halved in turn; a last recording
    checks them. All arrays must lie where they lay at the largest shape. ShapeError if it cannot be: a recording that
    makes arrays of its own, which may hold anything, differs from the next one of the same shape.
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
        places = np.flatnonzero(np.any(slopes, axis=0))
        self._places, self._slopes = places, np.stack(slopes)[:, places].T.copy()
        self._constants = self._words[places] - self._slopes @ np.array(largest)
        self._check(record)
        self._shape = largest  # that the words say

    def run(self, shape: Shape) -> None:
        if shape != self._shape:
            self._words[self._places] = self._varying(shape)
            self._shape = shape
        self._backend.replay(self._calls)

    def beginning(self, record: Callable[[Shape], Program], shape: Shape) -> "ShapedProgram":
        """This program's first operations: those recorded at that shape. ShapeError if others are recorded."""
        recorded = record(shape)
        words = _words(recorded)
        ops, own = [op for op, _ in recorded.calls], [op for op, _ in self._first.calls]
        if ops != own[: len(ops)] or (words != self._at(shape)[: len(words)]).any():
            raise ShapeError("not the beginning of the program")
        part = copy(self)
        part._words, part._shape = words, shape
        part._calls = _calls(recorded, words)
        inside = self._places < len(words)
        part._places, part._slopes, part._constants = (
            array[inside] for array in (self._places, self._slopes, self._constants)
        )
        return part

    def _at(self, shape: Shape) -> I64:
        """The words at a shape."""
        words = self._words.copy()
        words[self._places] = self._varying(shape)
        return words

    def _varying(self, shape: Shape) -> I64:
        """The words that depend on the shape."""
        values: I64 = self._constants + self._slopes @ np.array(shape)
        return values

    def _slope(self, record: Callable[[Shape], Program], number: int) -> I64:
        """What one more of that count adds to each word."""
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
    """Those counts divided, but not below 2: at 1, strides are not what they are elsewhere."""
    return tuple(min(size, max(2, size // divisor)) if i in numbers else size for i, size in enumerate(shape))


def _words(program: Program) -> I64:
    return np.concatenate([np.frombuffer(memoryview(args), np.int64) for _, args in program.calls])


def _words_like(first: Program, other: Program) -> I64:
    if [op for op, _ in first.calls] != [op for op, _ in other.calls]:
        raise ShapeError("other operations at another shape")
    return _words(other)


def _calls(program: Program, words: I64) -> Any:
    """The program's calls with the words as their arguments."""
    calls, place = [], words.ctypes.data
    for op, args in program.calls:
        calls.append(abi.Call(op, 0, place))
        place += sizeof(args)
    return (abi.Call * len(calls))(*calls)
