"""Round-to-nearest quantisation of float weights to each integer format."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.activations import ONE_LIMB_ROWS, TWO_LIMBS, ActivationForm
from surefoot.ops.arrays import F32
from surefoot.ops.weights import I16, IntegerWeights, WeightFormat

W8 = WeightFormat(bits=8, limbs=1)
W8_GROUPED = WeightFormat(bits=8, limbs=2, group=32)
W4 = WeightFormat(bits=4, limbs=1, group=32)
W4_WIDE = WeightFormat(bits=4, limbs=2, group=32)


@dataclass(frozen=True)
class ModelFormat:
    """The formats of a model's matrix products."""

    weights: WeightFormat | None  # format that float matrices are quantised to; None: they stay floats
    inputs: ActivationForm = TWO_LIMBS  # format of the rows that matrices are multiplied with
    remainder: WeightFormat | None = None  # format of what rounding left of a float matrix; None: it is dropped


AUTO_FORMAT = "auto"  # the default: w8, and w12 for encoders
SERVED = ModelFormat(W8_GROUPED)  # w8; files with codes keep their codes
FLOAT32 = ModelFormat(None)  # all in float32, codes too: for evaluation
# By option value.
MODEL_FORMATS = {
    "w8": SERVED,
    "w12": ModelFormat(W8_GROUPED, remainder=W4_WIDE),
    "w8-rows": ModelFormat(W8),
    "w8a8": ModelFormat(W8, ONE_LIMB_ROWS),
    "w4": ModelFormat(W4_WIDE),
    "w4-narrow": ModelFormat(W4),
    "f32": FLOAT32,
}

GRID_15 = 16256  # the largest integer of a two-limb weight: 127 * 128
INT4 = np.arange(-8, 8).astype(np.int8)  # table of the values of 4-bit codes


def to_format(name: str) -> ModelFormat:
    if name not in MODEL_FORMATS:
        raise ValueError(f"there is no format {name!r}: choose one of {', '.join(MODEL_FORMATS)}")
    return MODEL_FORMATS[name]


def round_to(fmt: WeightFormat, weights: F32) -> IntegerWeights:
    """Float weights [n, k], rounded to the nearest codes of the format."""
    if fmt.bits == 8:
        return _w8(weights) if fmt.limbs == 1 else _w8_grouped(fmt, weights)
    return _w4(fmt, weights) if fmt.limbs == 1 else _w4_wide(fmt, weights)


def _row_scales(weights: F32, largest: int) -> F32:
    scales = np.abs(weights).max(axis=1) / np.float32(largest)
    return np.where(scales > 0, scales, np.float32(1)).astype(np.float32)


def _by_group(values: NDArray[np.float32], group: int) -> NDArray[np.float32]:
    """Values [n, k] as [n, groups, group], padded with zeros; a view if there is no padding."""
    n, k = values.shape
    if k % group == 0:
        return values.reshape(n, -1, group)
    padded = np.zeros((n, -(-k // group) * group), np.float32)
    padded[:, :k] = values
    return padded.reshape(n, -1, group)


def _reduce_groups(reduce: np.ufunc, grid: NDArray[np.float32]) -> NDArray[np.float32]:
    """The minimum or maximum of each group. Column by column: numpy reduces short rows four times slower."""
    reduced: NDArray[np.float32] = grid[..., 0].copy()
    for column in range(1, grid.shape[-1]):
        reduce(reduced, grid[..., column], out=reduced)
    return reduced


def _flat(codes: NDArray[np.float32], k: int) -> NDArray[np.int8]:
    return np.ascontiguousarray(codes.reshape(len(codes), -1)[:, :k].astype(np.int8))


def _w8(weights: F32) -> IntegerWeights:
    scales = _row_scales(weights, 127)
    return IntegerWeights(W8, np.rint(weights / scales[:, None]).astype(np.int8), scales)


def _w8_grouped(fmt: WeightFormat, weights: F32) -> IntegerWeights:
    """The largest code of a group is 127. Its multiplier M maps 127 to the group's largest integer, 127 * M / 128."""
    rows = _row_scales(weights, GRID_15)
    grid = _by_group(weights / rows[:, None], fmt.group)
    multipliers = np.clip(np.rint(_reduce_groups(np.maximum, np.abs(grid)) * 128 / 127), 1, 32767 * 127 // 128)
    # In place: most of the time to load a float checkpoint is spent here.
    grid *= 128
    grid /= multipliers[..., None]
    np.clip(np.rint(grid, out=grid), -127, 127, out=grid)
    return IntegerWeights(fmt, _flat(grid, weights.shape[1]), rows, multipliers.astype(np.int16))


def _nearest_int4(grid: NDArray[np.float32], middle: NDArray[np.float32], step: NDArray[Any]) -> NDArray[np.float32]:
    """Codes -8 to 7 of values by group. Code 0 encodes `middle`, and codes are a `step` apart."""
    codes: NDArray[np.float32] = np.clip(np.rint((grid - middle[..., None]) / step[..., None]), -8, 7)
    return codes


def _w4(fmt: WeightFormat, weights: F32) -> IntegerWeights:
    """Weights on a grid of ±119 per row, so that the 16 values of any group stay within int8."""
    rows = _row_scales(weights, 119)
    grid = _by_group(weights / rows[:, None], fmt.group)
    low, high = _reduce_groups(np.minimum, grid), _reduce_groups(np.maximum, grid)
    step: I16 = np.clip(np.ceil((high - low) / 15), 1, 17).astype(np.int16)
    # Keep 16 steps inside int8: -127 <= middle - 8 step and middle + 7 step <= 127.
    middle = np.clip(np.rint(low + 8 * step), -127 + 8 * step, 127 - 7 * step)
    codes = _nearest_int4(grid, middle, step)
    return IntegerWeights(fmt, _flat(codes + 8, weights.shape[1]), rows, step, middle.astype(np.int16), INT4)


def _w4_wide(fmt: WeightFormat, weights: F32) -> IntegerWeights:
    """Same as `_w4` on the 15-bit grid, where the step of a group has up to 11 bits."""
    rows = _row_scales(weights, GRID_15)
    grid = _by_group(weights / rows[:, None], fmt.group)
    low, high = _reduce_groups(np.minimum, grid), _reduce_groups(np.maximum, grid)
    step: I16 = np.maximum(np.rint((high - low) / 15), 1).astype(np.int16)
    middle = np.rint(low + 8 * step)
    codes = _nearest_int4(grid, middle, step)
    return IntegerWeights(fmt, _flat(codes + 8, weights.shape[1]), rows, step, middle.astype(np.int16), INT4)
