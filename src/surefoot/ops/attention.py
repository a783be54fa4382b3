"""Paged attention: any mix of prefill chunks and single tokens in one call."""

from dataclasses import dataclass

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, check, empty, head_stride, pointer, row_stride
from surefoot.ops.backend import Backend
from surefoot.ops.kv import KvCache

WHOLE = 1 << 32  # a window that is larger than any request


@dataclass(frozen=True)
class Chunks:
    """The chunks of a batch: which query rows they have, and which blocks have their requests' tokens.

    Chunk c has rows starts[c] to starts[c + 1]; its last row is at position lengths[c] - 1.
    """

    starts: I64  # [chunks + 1]
    lengths: I64  # [chunks], tokens of the request in the cache, including the chunk's
    block_table: I64  # [chunks, blocks], the request's blocks in order

    def __len__(self) -> int:
        return len(self.lengths)


def attention(
    backend: Backend,
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
    out: F32 | None = None,
) -> F32:
    """Attention of q [rows, heads, head_dim] over the cache, which already has the chunks' own tokens.

    window: a token attends to itself and the window - 1 tokens before it (0: to all). fixed: windows stand side by side
    from position 0 on, and a token attends to those of its own up to itself. sees_ahead: to as many tokens after it
    too, as far as the request has tokens in the cache. sinks: a logit per head that is part of the softmax but has no
    value. slopes: what a head's logits fall by for each token of the distance; not with a softcap. Returns [rows,
    heads, value_dim].
    """
    check("q", q, np.float32, None, None, cache.head_dim)
    rows, heads, _ = q.shape
    if out is None:
        out = empty((rows, heads, cache.value_dim), np.float32)
    check("out", out, np.float32, rows, heads, cache.value_dim)
    _check_chunks(chunks, rows)
    if window < 0:
        raise ValueError(f"a window has 1 token or more, or 0 for all, not {window}")
    if fixed and (sees_ahead or not window):
        raise ValueError("windows that stand side by side have a length, and no token of them sees later ones")
    if sinks is not None:
        check("sinks", sinks, np.float32, heads)
    if slopes is not None:
        check("slopes", slopes, np.float32, heads)
    args = abi.AttentionArgs(
        cache.struct(), pointer(q), pointer(out), pointer(chunks.starts), pointer(chunks.lengths),
        pointer(chunks.block_table), pointer(sinks), pointer(slopes), len(chunks), heads, head_stride(q),
        head_stride(out), row_stride(chunks.block_table), -(window or WHOLE) if sees_ahead else window,
        scale, softcap, fixed,
    )  # fmt: skip
    backend.run("attention", args, q, cache, chunks, sinks, slopes, out)
    return out


def _check_chunks(chunks: Chunks, rows: int) -> None:
    check("lengths", chunks.lengths, np.int64, None)
    check("starts", chunks.starts, np.int64, len(chunks) + 1)
    check("block_table", chunks.block_table, np.int64, len(chunks), None)
    if chunks.starts[-1] > rows:
        raise ValueError(f"chunks end at row {chunks.starts[-1]}, q has {rows}")
