"""Hadamard rotation: outliers of a few channels spread over all, so that int8 with one scale a row wastes less.

A matrix W that reads x reads Rx as W R'. R is orthogonal and its own inverse but for the order of its factors, so in
float nothing changes. Widths that are no power of two are rotated in blocks of the largest power that divides them.
"""

import numpy as np

from surefoot.ops.arrays import F32


def rotate(x: F32) -> F32:
    """The last axis, in blocks, by a fast Walsh-Hadamard transform: orthogonal and symmetric."""
    width = x.shape[-1]
    block = width & -width
    parts = x.reshape(*x.shape[:-1], -1, block).astype(np.float32)
    half = 1
    while half < block:
        pairs = parts.reshape(*parts.shape[:-1], -1, 2, half)
        parts = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        parts = parts.reshape(*x.shape[:-1], -1, block)
        half *= 2
    return (parts / np.float32(np.sqrt(block))).reshape(x.shape)


def int8_rows(x: F32) -> F32:
    """Rounded to int8 with one scale a row: what W8A8 engines do to activations."""
    scales = np.maximum(np.abs(x).max(axis=-1, keepdims=True) / np.float32(127), np.float32(1e-12))
    rounded: F32 = np.rint(x / scales) * scales
    return rounded


def int8_error(x: F32, weights: F32) -> float:
    """Relative rms error of the outputs when inputs and weights are rounded to int8, one scale a row of each."""
    exact = x @ weights.T
    lost = int8_rows(x) @ int8_rows(weights).T - exact
    return float(np.sqrt((lost.astype(np.float64) ** 2).mean() / (exact.astype(np.float64) ** 2).mean()))
