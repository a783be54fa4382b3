"""The KV cache of one layer: blocks of slots, written token by token, copied block by block."""

from ctypes import byref
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, U8, Arena, check, empty, head_stride, huge_empty, pointer
from surefoot.ops.backend import Backend

HUGE_PAGE = 2 << 20


class KvForm(IntEnum):
    """Number format of keys and values. Integer forms have a scale for each token's key and one for its value."""

    KEYS_TWO_LIMBS = 0  # the default: keys of 15 bits, values of 8
    ONE_LIMB = 1  # both of 8 bits
    TWO_LIMBS = 2  # both of 15 bits
    BFLOAT16 = 3  # for reference


@dataclass(frozen=True)
class KvCache:
    """The keys and values of a layer."""

    data: U8  # [blocks, kv heads, record bytes]; native/kernels/kv.h has the layout of a record
    block_size: int  # tokens
    head_dim: int
    value_dim: int
    form: KvForm

    @property
    def num_blocks(self) -> int:
        return int(self.data.shape[0])

    @property
    def kv_heads(self) -> int:
        return int(self.data.shape[1])

    def struct(self) -> abi.KvCacheStruct:
        return abi.KvCacheStruct(
            pointer(self.data),
            self.num_blocks,
            self.block_size,
            self.kv_heads,
            self.head_dim,
            self.value_dim,
            self.form,
        )


def empty_kv_cache(
    backend: Backend,
    num_blocks: int,
    block_size: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int | None = None,
    form: KvForm = KvForm.KEYS_TWO_LIMBS,
    arena: Arena | None = None,
) -> KvCache:
    """An empty cache. Dims must be multiples of 16 up to 576, the block size a multiple of 16.

    The caches of a model's layers should share an arena."""
    value_dim = value_dim or head_dim
    shape = abi.KvCacheStruct(None, num_blocks, block_size, kv_heads, head_dim, value_dim, form)
    record_bytes = backend.library.sf_kv_record_bytes(byref(shape))
    if record_bytes < 0:
        reason = backend.library.sf_error(-record_bytes).decode()
        raise ValueError(f"no KV cache of {kv_heads} heads of {head_dim}/{value_dim}, blocks of {block_size}: {reason}")
    nbytes = num_blocks * kv_heads * record_bytes
    data = kv_bytes(nbytes) if arena is None else arena.empty(nbytes)
    if arena is not None:  # not of small arrays, whose pages they share with others
        backend.pages.spread(data.ctypes.data, nbytes)
    data = data.reshape(num_blocks, kv_heads, record_bytes)
    return KvCache(data, block_size, head_dim, value_dim, form)


def kv_bytes(nbytes: int) -> U8:
    """Memory for a cache, in huge pages if it is large: blocks are scattered, and most reads of small pages would cost
    a page table walk."""
    return huge_empty(nbytes) if nbytes >= HUGE_PAGE else empty((nbytes,), np.uint8)


def kv_write(backend: Backend, cache: KvCache, keys: F32, values: F32, slots: I64) -> None:
    """Stores each row's key and value at its slot (block * block_size + offset). Rows with negative slots are skipped.

    keys: [rows, kv heads, head_dim]; values: [rows, kv heads, value_dim]; slots must be distinct.
    """
    check("slots", slots, np.int64, None)
    rows = len(slots)
    check("keys", keys, np.float32, rows, cache.kv_heads, cache.head_dim)
    check("values", values, np.float32, rows, cache.kv_heads, cache.value_dim)
    args = abi.KvWriteArgs(
        cache.struct(), pointer(keys), pointer(values), pointer(slots), rows, head_stride(keys), head_stride(values)
    )
    backend.run("kv_write", args, cache, keys, values, slots)


def kv_copy(backend: Backend, cache: KvCache, pairs: I64) -> None:
    """Copies whole blocks, in order. pairs: [count, 2] of (source, target)."""
    check("pairs", pairs, np.int64, None, 2)
    if not pairs.flags.c_contiguous:
        raise ValueError("pairs must be contiguous")
    backend.run("kv_copy", abi.KvCopyArgs(cache.struct(), pointer(pairs), len(pairs)), cache, pairs)
