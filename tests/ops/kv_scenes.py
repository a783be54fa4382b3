"""Requests with KV in shuffled blocks, for the tests of kv and attention."""

from dataclasses import dataclass

import numpy as np

from surefoot.ops import Backend, Chunks, KvCache, KvForm, attention, empty_kv_cache, kv_write
from surefoot.ops.arrays import F32, I64, empty
from tests.oracle import kv as oracle


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    block_size: int
    form: KvForm


@dataclass(frozen=True)
class Request:
    """A request's tokens: q [tokens, heads, dim], keys and values [tokens, kv heads, dim], and its blocks."""

    q: F32
    keys: F32
    values: F32
    blocks: I64


def aligned(x: F32) -> F32:
    out = empty(x.shape, np.float32)
    out[...] = x
    return out


def make_requests(
    rng: np.random.Generator, shape: Shape, lengths: list[int], spread: bool = True
) -> tuple[list[Request], int]:
    """Requests of these lengths, and the number of blocks that they need. spread: tokens differ much in magnitude."""
    counts = [-(-length // shape.block_size) for length in lengths]
    num_blocks = sum(counts) + 3
    ids = rng.spawn(1)[0].permutation(num_blocks)  # another stream, so that data do not depend on the block size

    def draw(length: int, heads: int, dim: int, low: float, high: float) -> F32:
        size = rng.uniform(low, high, (length, 1, 1)) if spread else 1.0
        return (rng.standard_normal((length, heads, dim)) * size).astype(np.float32)

    requests = []
    for length, end, count in zip(lengths, np.cumsum(counts), counts, strict=True):
        q = draw(length, shape.heads, shape.head_dim, 0.1, 4)
        keys = draw(length, shape.kv_heads, shape.head_dim, 0.1, 3)
        values = draw(length, shape.kv_heads, shape.value_dim, 0.01, 10)
        requests.append(Request(q, keys, values, ids[end - count : end]))
    return requests, num_blocks


def new_cache(backend: Backend, shape: Shape, num_blocks: int) -> KvCache:
    """A cache full of random bytes: unwritten slots must not affect results."""
    cache = empty_kv_cache(
        backend, num_blocks, shape.block_size, shape.kv_heads, shape.head_dim, shape.value_dim, shape.form
    )
    cache.data[...] = 0xFF
    return cache


def slots(shape: Shape, request: Request, start: int, end: int) -> I64:
    t = np.arange(start, end)
    return request.blocks[t // shape.block_size] * shape.block_size + t % shape.block_size


def write(backend: Backend | None, cache: KvCache, shape: Shape, request: Request, start: int, end: int) -> None:
    """Writes keys and values with the backend; None: with the oracle."""
    rows = (request.keys[start:end], request.values[start:end], slots(shape, request, start, end))
    if backend is None:
        oracle.kv_write(cache, *rows)
    else:
        kv_write(backend, cache, *rows)


def make_chunks(requests: list[Request], spans: list[tuple[int, int]]) -> tuple[F32, Chunks]:
    """The query rows of positions span[0] to span[1] - 1 of each request, and their chunks."""
    width = max(len(request.blocks) for request in requests)
    table = np.full((len(requests), width), -1, np.int64)
    for row, request in zip(table, requests, strict=True):
        row[: len(request.blocks)] = request.blocks
    starts = np.concatenate([[0], np.cumsum([end - start for start, end in spans])]).astype(np.int64)
    q = np.concatenate([request.q[start:end] for request, (start, end) in zip(requests, spans, strict=True)])
    return aligned(q), Chunks(starts, np.array([end for _, end in spans], np.int64), table)


def run_in_steps(
    backend: Backend, shape: Shape, request: Request, cuts: list[int], num_blocks: int, scale: float
) -> F32:
    """Attention of a whole request whose tokens arrive in chunks that end at these positions."""
    cache = new_cache(backend, shape, num_blocks)
    outs = []
    for start, end in zip([0, *cuts], [*cuts, len(request.q)], strict=True):
        write(backend, cache, shape, request, start, end)
        q, chunks = make_chunks([request], [(start, end)])
        outs.append(attention(backend, q, cache, chunks, scale))
    return np.concatenate(outs)
