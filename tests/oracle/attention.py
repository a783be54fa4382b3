"""Attention, step for step as native/kernels/attention.h: all rows of a kv head at once, segment after segment."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.activations import ActivationForm
from surefoot.ops.attention import Chunks
from surefoot.ops.kv import KvCache
from tests.oracle.activations import quantise
from tests.oracle.arithmetic import F32, fma, strided_dot, tree
from tests.oracle.elementary import horner, tanh
from tests.oracle.kv import Tokens, read

SEGMENT = 128
LOG2E = np.float32(1.44269504)
PROBABILITY_MAX = np.float32(65535)
LOWEST = np.float32(-np.finfo(np.float32).max)
f32 = np.float32


@dataclass(frozen=True)
class AttentionOptions:
    scale: float
    window: int = 0
    softcap: float = 0.0
    sees_ahead: bool = False
    fixed: bool = False


def exp2_bounded(x: F32) -> F32:
    """2^x for x <= 1; 2^-125 below -125."""
    x = np.maximum(x, f32(-125))
    n = np.rint(x)
    y = horner(
        x - n, 0.009570102207362652, 0.05591786280274391, 0.240247443318367, 0.6931217908859253, 0.9999992847442627
    )
    return (y.view(np.int32) + (n.astype(np.int32) << 23)).view(np.float32)


def power_of_two(n: F32) -> F32:
    """2^n for whole n <= 0; zero below -126."""
    return np.where(n >= -126, np.ldexp(1.0, np.maximum(n, -126).astype(np.int32)), 0).astype(np.float32)


@dataclass(frozen=True)
class AttentionPart:
    """Partial results of rows."""

    top: F32  # [rows], rounded maximum of the logits
    sums: F32  # [rows, 16], of the probabilities
    out: F32  # [rows, value_dim], not normalised
    weight: F32  # [rows], unit of `out`


def exact_dot(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.int64]:
    """a @ b of integers; float64 represents all sums here exactly."""
    product = a.astype(np.float64) @ b.astype(np.float64)
    return product.astype(np.int64)


def integer_logits(q: F32, tokens: Tokens, at: slice, options: AttentionOptions) -> tuple[F32, F32]:
    """x [rows, tokens] and factor [rows]; x * factor are the logits in base 2."""
    rows, dims = q.shape
    limbs = quantise(q, ActivationForm(2))
    qh, ql = (limbs.values[:, limb, :dims].astype(np.int64) for limb in (0, 1))
    q_scale = limbs.scales[:, 0]
    kh = tokens.keys[0, at].T
    two = len(tokens.keys) == 2
    mid = exact_dot(ql, kh) + (exact_dot(qh, tokens.keys[1, at].T) if two else 0)
    x = (128 * exact_dot(qh, kh) + mid).astype(np.float32) * tokens.key_scales[at]
    unit = f32(128 if two else 1)
    if not options.softcap:
        return x, q_scale * (f32(options.scale) * LOG2E * unit)
    inner = q_scale * (f32(options.scale) * unit) / f32(options.softcap)
    return soft(x * inner[:, None], options, rows)


def float_logits(q: F32, tokens: Tokens, at: slice, options: AttentionOptions) -> tuple[F32, F32]:
    x = strided_dot(q[:, None], tokens.keys[None, at])
    if not options.softcap:
        return x, np.full(len(q), f32(options.scale) * LOG2E)
    return soft(x * (f32(options.scale) / f32(options.softcap)), options, len(q))


def soft(x: F32, options: AttentionOptions, rows: int) -> tuple[F32, F32]:
    return tanh(x), np.full(rows, f32(options.softcap) * LOG2E)


def integer_out(p: F32, tokens: Tokens, at: slice) -> tuple[F32, F32]:
    w = p * tokens.value_scales[at]
    w[p == 0] = 0  # unwritten slots have arbitrary scales
    w_max = w.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(w_max > f32(1e-30), PROBABILITY_MAX / w_max, f32(0))
    weights = np.rint(w * inverse).astype(np.int64)
    outs = [exact_dot(weights, limb[at]).astype(np.float32) for limb in tokens.values]
    out = outs[0] if len(outs) == 1 else fma(outs[0], f32(128), outs[1])
    return out, w_max[:, 0] * (f32(1) / PROBABILITY_MAX)


def float_out(p: F32, tokens: Tokens, at: slice) -> tuple[F32, F32]:
    out = np.zeros((len(p), tokens.values.shape[1]), np.float32)
    for t, value in enumerate(tokens.values[at]):
        seen = p[:, t] > 0
        out[seen] = fma(p[seen, t, None], value, out[seen])
    return out, np.ones(len(p), np.float32)


def segment_part(
    q: F32,
    tokens: Tokens,
    start: int,
    visible: NDArray[np.bool_],
    options: AttentionOptions,
    positions: NDArray[np.int64],
    slopes: F32 | None,
) -> AttentionPart:
    """The rows' partial results over the tokens from `start` on. visible [rows, tokens]: at least one true per row."""
    at = slice(start, start + visible.shape[1])
    integer = tokens.keys.ndim == 3
    x, factor = (integer_logits if integer else float_logits)(q, tokens, at, options)
    if slopes is not None:
        distances = np.abs(positions[:, None] - np.arange(at.start, at.stop)).astype(np.float32)
        x = fma(distances, -(slopes * LOG2E)[:, None], x * factor[:, None])
        factor = np.ones_like(factor)
    x = np.where(visible, x, LOWEST)
    top = np.rint(x.max(axis=1) * factor)
    with np.errstate(over="ignore"):
        p = np.where(visible, exp2_bounded(fma(x, factor[:, None], -top[:, None])), f32(0))
    sums = lane_sums(p)
    out, weight = (integer_out if integer else float_out)(p, tokens, at)
    return AttentionPart(top, sums, out, weight)


def lane_sums(p: F32) -> F32:
    """Sums [rows, 16]: the tokens of each lane, added in ascending order."""
    filled = np.zeros((len(p), SEGMENT), np.float32)
    filled[:, : p.shape[1]] = p
    lanes = np.zeros((len(p), 16), np.float32)
    for group in filled.reshape(len(p), -1, 16).transpose(1, 0, 2):
        lanes = lanes + group
    return lanes


def merge(whole: AttentionPart, part: AttentionPart) -> AttentionPart:
    m = np.maximum(whole.top, part.top)
    a, b = power_of_two(whole.top - m)[:, None], power_of_two(part.top - m)[:, None]
    sums = fma(part.sums, b, whole.sums * a)
    out = fma(part.out, part.weight[:, None] * b, whole.out * a)
    return AttentionPart(m, sums, out, whole.weight)


def finish(whole: AttentionPart, sinks: F32 | None) -> F32:
    total, a = tree(whole.sums), np.ones(len(whole.top), np.float32)
    if sinks is not None:
        s = sinks * LOG2E
        m = np.maximum(whole.top, np.rint(s))
        a = power_of_two(whole.top - m)
        total = fma(total, a, exp2_bounded(s - m))
    return whole.out * a[:, None] / total[:, None]


def lowest_visible(positions: NDArray[np.int64], window: int, fixed: bool) -> NDArray[np.int64]:
    if fixed:
        return positions - positions % window
    return positions - window + 1 if window else np.zeros_like(positions)


def attend(
    q: F32,
    positions: NDArray[np.int64],
    length: int,
    tokens: Tokens,
    sinks: F32 | None,
    slopes: F32 | None,
    options: AttentionOptions,
) -> F32:
    """Attention of rows q [rows, head_dim] of a kv head at these positions of a request of `length` tokens. sinks and
    slopes: of the rows' heads."""
    rows, value_dim = len(q), tokens.values.shape[-1]
    zero = np.zeros(rows, np.float32)
    whole = AttentionPart(
        zero + LOWEST, np.zeros((rows, 16), np.float32), np.zeros((rows, value_dim), np.float32), zero
    )
    lowest = lowest_visible(positions, options.window, options.fixed)
    ahead = (options.window or length) - 1 if options.sees_ahead else 0
    highest = np.minimum(positions + ahead, length - 1)
    for start in range(0, int(highest.max(initial=-1)) + 1, SEGMENT):
        t = np.arange(start, min(start + SEGMENT, int(highest.max()) + 1))
        visible = (t <= highest[:, None]) & (t >= lowest[:, None])
        sees = visible.any(axis=1)
        if not sees.any():
            continue
        row_slopes = None if slopes is None else slopes[sees]
        part = segment_part(q[sees], tokens, start, visible[sees], options, positions[sees], row_slopes)
        merged = merge(AttentionPart(*(field[sees] for field in vars(whole).values())), part)
        for into, new in zip(vars(whole).values(), vars(merged).values(), strict=True):
            into[sees] = new
    return finish(whole, sinks)


def attention(
    q: F32,
    cache: KvCache,
    chunks: Chunks,
    scale: float,
    *,
    window: int = 0,
    fixed: bool = False,
    sees_ahead: bool = False,
    sinks: F32 | None = None,
    softcap: float = 0.0,
    slopes: F32 | None = None,
) -> F32:
    rows, heads, _ = q.shape
    group = heads // cache.kv_heads
    y = np.zeros((rows, heads, cache.value_dim), np.float32)
    options = AttentionOptions(scale, window, softcap, sees_ahead, fixed)
    for c in range(len(chunks)):
        chunk = slice(int(chunks.starts[c]), int(chunks.starts[c + 1]))
        length = int(chunks.lengths[c])
        positions = np.repeat(np.arange(length - (chunk.stop - chunk.start), length), group)
        lowest = lowest_visible(positions, window, fixed)
        first = max(0, int(lowest.min(initial=length))) // cache.block_size
        blocks = chunks.block_table[c, : -(-length // cache.block_size)].copy()
        blocks[:first] = 0  # before the window of every row
        for head in range(cache.kv_heads):
            q_heads = slice(head * group, (head + 1) * group)
            count = chunk.stop - chunk.start
            row_sinks, row_slopes = (None if x is None else np.tile(x[q_heads], count) for x in (sinks, slopes))
            flat = q[chunk, q_heads].reshape(-1, cache.head_dim)
            out = attend(flat, positions, length, read(cache, blocks, head), row_sinks, row_slopes, options)
            y[chunk, q_heads] = out.reshape(-1, group, cache.value_dim)
    return y
