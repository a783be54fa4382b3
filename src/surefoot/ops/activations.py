"""Quantised rows: floats as fixed-point integers in one or two int8 limbs."""

from dataclasses import dataclass

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I8, check, empty, pointer, row_stride
from surefoot.ops.backend import Backend


@dataclass(frozen=True)
class ActivationForm:
    """How rows are quantised: two limbs with a scale per row, or one limb with a scale per group of columns."""

    limbs: int = 2  # int8 limbs of a value
    group: int = 0  # columns that share a scale; 0: the whole row

    def num_groups(self, cols: int) -> int:
        return -(-cols // self.group) if self.group else 1


TWO_LIMBS = ActivationForm(2)
ONE_LIMB = ActivationForm(1, 128)
ONE_LIMB_ROWS = ActivationForm(1)


@dataclass(frozen=True)
class Activations:
    """Quantised rows."""

    values: I8  # [rows, limbs, stride], zero beyond cols
    scales: F32  # [rows, groups]
    cols: int
    form: ActivationForm

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    def check(self, rows: int, cols: int) -> None:
        """Raises unless this has room for `rows` rows of `cols` columns."""
        check("values", self.values, np.int8, rows, self.form.limbs, padded(cols))
        check("scales", self.scales, np.float32, rows, self.form.num_groups(cols))
        if not (self.values.flags.c_contiguous and self.scales.flags.c_contiguous):
            raise ValueError("quantised rows must be contiguous")

    def struct(self) -> abi.ActivationsStruct:
        form = self.form
        return abi.ActivationsStruct(
            pointer(self.values), pointer(self.scales), self.values.shape[2], form.limbs, form.group
        )


def padded(cols: int) -> int:
    """Columns rounded up to an odd number of 64-byte lines, so that successive rows fall into different cache sets."""
    return (-(-cols // 64) | 1) * 64


def empty_activations(rows: int, cols: int, form: ActivationForm = TWO_LIMBS) -> Activations:
    values = empty((rows, form.limbs, padded(cols)), np.int8)
    return Activations(values, empty((rows, form.num_groups(cols)), np.float32), cols, form)


def quantise(backend: Backend, x: F32, form: ActivationForm = TWO_LIMBS, out: Activations | None = None) -> Activations:
    """The rows of x in fixed point."""
    check("x", x, np.float32, None, None)
    rows, cols = x.shape
    if out is None:
        out = empty_activations(rows, cols, form)
    out.check(rows, cols)
    args = abi.QuantiseArgs(pointer(x), rows, cols, row_stride(x), out.struct())
    backend.run("quantise", args, x, out)
    return out
