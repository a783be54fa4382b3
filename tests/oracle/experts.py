"""Mixture of experts, as native/kernels/route.h, group_experts.cpp and combine.cpp."""

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.arrays import I64
from surefoot.ops.experts import ExpertRows, Groups, Router, Routes, Scoring
from tests.oracle.arithmetic import F32, fma, rank, strided_sum
from tests.oracle.elementary import exp

f32 = np.float32


def softmax(x: F32) -> F32:
    powers = exp(x - x.max(axis=-1, keepdims=True))
    return powers / strided_sum(powers)[:, None]


def kept_experts(values: F32, groups: Groups) -> NDArray[np.bool_]:
    """Which experts are in the best groups of each row."""
    by_group = values.reshape(len(values), groups.count, -1)
    best = np.take_along_axis(by_group, rank(by_group)[:, :, : groups.best], axis=2)
    order = rank(best[:, :, 0] if groups.best == 1 else best[:, :, 0] + best[:, :, 1])
    kept = np.zeros_like(by_group, np.bool_)
    np.put_along_axis(kept, order[:, : groups.kept, None], True, axis=1)
    return kept.reshape(values.shape)


def route(logits: F32, router: Router, bias: F32 | None = None, expert_scales: F32 | None = None) -> Routes:
    scores = logits
    if router.scoring is Scoring.SOFTMAX_ALL:
        scores = softmax(logits)
    elif router.scoring is Scoring.SIGMOID:
        scores = f32(1) / (f32(1) + exp(-logits))
    values = logits if router.groups.count == 1 else scores
    values = values if bias is None else scores + bias
    dropped = ~kept_experts(values, router.groups)
    ids = np.lexsort((-values, dropped), axis=-1)[:, : router.top_k]
    weights = np.take_along_axis(scores, ids, axis=1)
    if router.scoring is Scoring.SOFTMAX_CHOSEN:
        weights = softmax(weights)
    if router.normalise:
        weights = weights / (strided_sum(weights) + f32(1e-20))[:, None]
    weights = weights * f32(router.scale)
    return Routes(ids, weights if expert_scales is None else weights * expert_scales[ids])


def group_by_expert(ids: I64, num_experts: int) -> ExpertRows:
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    places = np.empty_like(flat)
    places[order] = np.arange(flat.size)
    starts = np.zeros(num_experts + 1, np.int64)
    np.cumsum(np.bincount(flat, minlength=num_experts), out=starts[1:])
    return ExpertRows(order // ids.shape[1], starts, places.reshape(ids.shape))


def combine(x: F32, places: I64, weights: F32, residual: F32 | None = None) -> F32:
    y = np.zeros((places.shape[0], x.shape[1]), np.float32)
    for j in range(places.shape[1]):
        y = fma(weights[:, j, None], x[places[:, j]], y)
    return y if residual is None else y + residual
