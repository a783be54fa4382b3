"""Which level each weight takes: the nearest, or GPTQ's choice. Pure functions over one matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.compress.grids import Grid
from surefoot.ops.arrays import F32, U8

BLOCK = 64  # columns whose errors are carried on together
DAMPING = 0.001  # of the mean second moment, added to the diagonal
ROWS = 16384  # at a time: rows are independent, and wide vocabularies have many


def nearest(grid: Grid, weights: F32) -> U8:
    return grid.index(weights)


@dataclass(frozen=True)
class Carry:
    """How errors are carried on: the order of columns, and for each what later ones make up for. It is most of GPTQ's
    work, and the same for all matrices with the same inputs and for every format."""

    order: NDArray[np.int64]
    factor: F32

    @classmethod
    def of(cls, moments: F32, num_rows: int, ordered: bool = True) -> "Carry":
        """moments: X'X of so many inputs, [k, k], of any scale. ordered: columns with the largest inputs first."""
        order = np.argsort(-np.diag(moments), kind="stable") if ordered else np.arange(len(moments))
        return cls(order, inverse_factor(moments[np.ix_(order, order)], num_rows))


def gptq(grid: Grid, weights: F32, carry: Carry) -> U8:
    """Codes column by column, each column's error made up for by the columns after it (Frantar et al. 2022)."""
    parts = [slice(start, start + ROWS) for start in range(0, len(weights), ROWS)]
    return np.concatenate([_rows(grid.rows(part), weights[part], carry) for part in parts])


def inverse_factor(moments: F32, num_rows: int) -> F32:
    """Upper U with U'U = the inverse of the damped moments. In float64: calibration text leaves them near-singular.

    Correlations seen in few inputs are half chance, and errors carried on by chance are errors: a diagonal larger by
    k / num_rows believes them as far as they go (least error on other text, for 576 and 1536 columns alike)."""
    h = moments.astype(np.float64)
    diagonal = np.einsum("ii->i", h)
    diagonal[diagonal <= 0] = 1.0  # a column that no input has reached
    diagonal *= 1 + len(h) / num_rows
    diagonal += DAMPING * diagonal.mean()
    # From the last column on, h = R R' with R upper, and U is R's inverse: the inverse of h is never made.
    backwards: NDArray[np.float64] = np.linalg.cholesky(h[::-1, ::-1]).astype(np.float64, copy=False)
    upper: F32 = np.ascontiguousarray(_inverse_lower(backwards)[::-1, ::-1], np.float32)
    return upper


def _inverse_lower(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """By halves, so that nearly all of it is matrix products."""
    n = len(lower)
    if n <= 64:
        return np.tril(np.linalg.inv(lower)).astype(np.float64)
    half, inverse = n // 2, np.zeros_like(lower)
    first, last = _inverse_lower(lower[:half, :half]), _inverse_lower(lower[half:, half:])
    inverse[:half, :half], inverse[half:, half:] = first, last
    inverse[half:, :half] = -last @ (lower[half:, :half] @ first)
    return inverse


def _rows(grid: Grid, weights: F32, carry: Carry) -> U8:
    order, factor = carry.order, carry.factor
    # Transposed: a column of weights lies together.
    left = np.ascontiguousarray(weights.T[order])
    k, n = left.shape
    codes = np.empty((k, n), np.uint8)
    for start in range(0, k, BLOCK):
        end = min(start + BLOCK, k)
        errors = np.empty((end - start, n), np.float32)
        for j in range(start, end):
            column = int(order[j])
            codes[column] = grid.index(left[j], column)
            error = (left[j] - grid.column(codes[column], column)) / factor[j, j]
            left[j + 1 : end] -= factor[j, j + 1 : end, None] * error
            errors[j - start] = error
        left[end:] -= factor[start:end, end:].T @ errors
    return np.ascontiguousarray(codes.T)


def output_error(weights: F32, replaced: F32, moments: F32) -> float:
    """tr(dW H dW'): the squared error of the outputs, in the moments' scale."""
    delta = replaced - weights
    return float(np.einsum("ij,ij->", delta @ moments, delta, dtype=np.float64))
