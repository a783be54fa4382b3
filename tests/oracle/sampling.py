"""Sampling, as native/kernels/sample.h, but with full sorts where the kernels select, and noise for every id."""

from typing import Any

import numpy as np

from surefoot.ops.arrays import I64
from surefoot.ops.sampling import Sampled, SamplingRows, TopLogprobs
from tests.oracle.arithmetic import F32, rank, strided_sum
from tests.oracle.elementary import exp, log

f32 = np.float32
Words = np.ndarray[Any, np.dtype[np.uint64]]

MASK = np.uint64(0xFFFFFFFF)
SAMPLE_STREAM = 0x73616D70
MIN_TEMPERATURE = f32(1e-5)  # below: greedy


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10: four 32-bit words (as uint64) for every counter [..., 4]."""
    c0, c1, c2, c3 = np.moveaxis(counter.astype(np.uint64), -1, 0)
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0), second & MASK,
            (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1), first & MASK,
        )  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], axis=-1)


def noise(seed: int, position: int, ids: I64) -> F32:
    """Gumbel noise of each id."""
    where = position % 2**64
    counter = np.zeros((len(ids), 4), np.uint64)
    counter[:, 0] = ids // 4
    counter[:, 1:] = where % 2**32, where >> 32, SAMPLE_STREAM
    words = philox(counter, (seed % 2**32, seed >> 32))[np.arange(len(ids)), ids % 4]
    u = ((words >> np.uint64(9)).astype(np.float32) + f32(0.5)) * f32(2.0**-23)
    return -log(-log(u))


def kept_ids(x: F32, scaled: F32, top_k: int, top_p: float, min_p: float) -> I64:
    """The ids that the filters keep, by rank."""
    ids = rank(x)
    if top_k > 0:
        ids = ids[:top_k]
    if top_p < 1:
        weights = np.rint(exp(scaled[ids]) * f32(2.0**30)).astype(np.int64)
        need = max(int(np.ceil(max(top_p, 0.0) * float(weights.sum()))), 1)
        ids = ids[: int(np.argmax(np.cumsum(weights) >= need)) + 1]
    if min_p > 0:
        ids = ids[scaled[ids] >= log(np.array(min(min_p, 1.0), np.float32))]
    return ids


def log_sum(x: F32) -> f32:
    """log of the sum of e^(x - max)."""
    return f32(log(strided_sum(exp(x - x.max()))))


def without_nan(logits: F32) -> F32:
    return np.where(np.isnan(logits), f32(-np.inf), logits)


def sample_row(x: F32, temperature: f32, top_k: int, top_p: float, min_p: float, seed: int, position: int) -> int:
    if temperature < MIN_TEMPERATURE:
        return int(rank(x)[0])
    scaled = (x - x.max()) * (f32(1) / temperature)
    ids = np.sort(kept_ids(x, scaled, top_k, top_p, min_p))
    return int(ids[np.argmax(scaled[ids] + noise(seed, position, ids))])


@np.errstate(over="ignore")
def sample(logits: F32, rows: SamplingRows) -> Sampled:
    tokens = np.full(len(logits), -1, np.int64)
    logprobs = np.full(len(logits), -np.inf, np.float32)
    for r, x in enumerate(without_nan(logits)):
        if np.isfinite(x.max()):
            filters = int(rows.top_k[r]), float(rows.top_p[r]), float(rows.min_p[r])
            tokens[r] = sample_row(x, rows.temperature[r], *filters, int(rows.seeds[r]), int(rows.positions[r]))
            logprobs[r] = (x[tokens[r]] - x.max()) - log_sum(x)
    return Sampled(tokens, logprobs)


@np.errstate(over="ignore")
def top_logprobs(logits: F32, count: int) -> TopLogprobs:
    ids = np.empty((len(logits), count), np.int64)
    logprobs = np.full((len(logits), count), -np.inf, np.float32)
    for r, x in enumerate(without_nan(logits)):
        ids[r] = rank(x)[:count]
        if np.isfinite(x.max()):
            logprobs[r] = (x[ids[r]] - x.max()) - log_sum(x)
    return TopLogprobs(ids, logprobs)
