"""Scratch arrays of a forward pass, by name: all layers use the same ones in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from surefoot.ops import ActivationForm, Activations, Backend, quantise
from surefoot.ops.activations import padded
from surefoot.ops.arrays import F32, I64, U8, Array, empty
from surefoot.ops.weights import PackedWeights

Matrix = PackedWeights | F32


@dataclass(frozen=True)
class Features:
    """Inputs of matrices, in one form or both."""

    floats: F32 | None  # for matrices in float32
    quantised: Activations | None  # fixed point, for packed matrices


class Workspace:
    """Scratch arrays by name. The same name is the same memory, so arrays that are in use at once need different names.

    A larger array under an old name is new memory; recorded programs keep the old memory alive."""

    def __init__(self) -> None:
        self._buffers: dict[str, U8] = {}
        self._parts: dict[str, Workspace] = {}

    @property
    def total_bytes(self) -> int:
        parts = sum(part.total_bytes for part in self._parts.values())
        return parts + sum(buffer.nbytes for buffer in self._buffers.values())

    def part(self, name: str) -> "Workspace":
        """A workspace inside this one, with names of its own."""
        return self._parts.setdefault(name, Workspace())

    def array(self, name: str, dtype: Any, *shape: int) -> Array:
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self._buffers[name] = empty((nbytes,), np.uint8)
        array: Array = buffer[:nbytes].view(dtype).reshape(shape)
        return array

    def floats(self, name: str, *shape: int) -> F32:
        return self.array(name, np.float32, *shape)

    def integers(self, name: str, *shape: int) -> I64:
        return self.array(name, np.int64, *shape)

    def features(self, name: str, shape: tuple[int, ...], readers: Sequence[Matrix]) -> Features:
        """Uninitialised features of the shape (rows, columns), in the forms that the readers take."""
        rows, cols = shape
        forms = [reader.inputs for reader in readers if isinstance(reader, PackedWeights)]
        return Features(
            None if len(forms) == len(readers) else self.floats(f"{name} floats", rows, cols),
            self.activations(name, rows, cols, max(forms, key=lambda form: form.limbs)) if forms else None,
        )

    def filled(self, backend: Backend, name: str, x: F32, readers: Sequence[Matrix]) -> Features:
        """x in the forms that its readers take."""
        target = self.features(name, x.shape, readers)
        if target.quantised is not None:
            quantise(backend, x, out=target.quantised)
        return Features(x if target.floats is not None else None, target.quantised)

    def activations(self, name: str, rows: int, cols: int, form: ActivationForm) -> Activations:
        values = self.array(f"{name} values", np.int8, rows, form.limbs, padded(cols))
        return Activations(values, self.floats(f"{name} scales", rows, form.num_groups(cols)), cols, form)
