"""Small operations over whole arrays: softcap, add, and the rows of an embedding table."""

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, Array, check, empty, pointer, row_stride
from surefoot.ops.backend import Backend
from surefoot.ops.weights import PackedWeights

EMBED_DTYPES = {np.dtype(np.float32): 0, np.dtype(np.uint16): 1}  # uint16 holds bfloat16 bits
PACKED = 2


def softcap(backend: Backend, x: F32, cap: float, out: F32 | None = None) -> F32:
    """cap * tanh(x / cap). out may be x."""
    out = _like(x, "x", out)
    backend.run("softcap", abi.SoftcapArgs(pointer(x), pointer(out), x.size, cap), x, out)
    return out


def add(backend: Backend, a: F32, b: F32 | None = None, scale: float = 1.0, out: F32 | None = None) -> F32:
    """(a + b) * scale, or a * scale. out may be a or b."""
    if b is not None:
        _check_flat("b", b, a.shape)
    out = _like(a, "a", out)
    backend.run("add", abi.AddArgs(pointer(a), pointer(b), pointer(out), a.size, scale), a, b, out)
    return out


def embed(backend: Backend, ids: I64, table: Array | PackedWeights, scale: float = 1.0, out: F32 | None = None) -> F32:
    """table[ids] * scale. The table [vocab, cols] is float32, bfloat16 (as uint16) or packed weights."""
    check("ids", ids, np.int64, None)
    data, (vocab, cols), dtype = _table(table)
    if out is None:
        out = empty((ids.size, cols), np.float32)
    check("out", out, np.float32, ids.size, cols)
    args = abi.EmbedArgs(
        pointer(ids), pointer(data), pointer(out), ids.size, vocab, cols, row_stride(out), dtype, scale
    )  # fmt: skip
    backend.run("embed", args, ids, data, out)
    return out


def _table(table: Array | PackedWeights) -> tuple[Array, tuple[int, int], int]:
    """An embedding table's bytes, shape and dtype code."""
    if isinstance(table, PackedWeights):
        return table.data, (table.n, table.k), PACKED
    if table.dtype not in EMBED_DTYPES:
        raise TypeError(f"the table must be float32 or bfloat16 (as uint16), not {table.dtype}")
    _check_flat("table", table, table.shape)
    vocab, cols = table.shape
    return table, (vocab, cols), EMBED_DTYPES[table.dtype]


def _check_flat(name: str, array: Array, shape: tuple[int, ...]) -> None:
    check(name, array, array.dtype, *shape)
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous")


def _like(x: F32, name: str, out: F32 | None) -> F32:
    """out, or a new array like x; both checked."""
    check(name, x, np.float32, *x.shape)
    _check_flat(name, x, x.shape)
    if out is None:
        return empty(x.shape, np.float32)
    check("out", out, np.float32, *x.shape)
    _check_flat("out", out, x.shape)
    return out
