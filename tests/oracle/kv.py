"""Writes KV cache bytes as native/kernels/kv.h does, and reads them back as numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.ops.activations import ActivationForm
from surefoot.ops.kv import KvCache, KvForm
from tests.oracle.activations import quantise
from tests.oracle.arithmetic import F32

GROUP = 16  # tokens
INTEGER_LIMBS = {KvForm.KEYS_TWO_LIMBS: (2, 1), KvForm.ONE_LIMB: (1, 1), KvForm.TWO_LIMBS: (2, 2)}


@dataclass(frozen=True)
class Views:
    """Views of a cache's bytes, each [blocks, heads, groups, ...]."""

    keys: NDArray[Any]  # integer forms: uint8 [limb, dim / 4, token, 4]; bfloat16: uint16 [token, dim]
    values: NDArray[Any]  # integer forms: int8 [limb, token / 4, dim, 4]; bfloat16: uint16 [token, dim]
    scales: NDArray[Any]  # float32 [key or value, token]


def views(cache: KvCache) -> Views:
    blocks, heads, _ = cache.data.shape
    groups = cache.data.reshape(blocks, heads, cache.block_size // GROUP, -1)
    lead = groups.shape[:3]
    kl, vl = INTEGER_LIMBS.get(cache.form, (2, 2))
    split = np.cumsum([kl * cache.head_dim * GROUP, vl * cache.value_dim * GROUP])
    keys, values, scales = groups[..., : split[0]], groups[..., split[0] : split[1]], groups[..., split[1] :]
    if cache.form == KvForm.BFLOAT16:
        return Views(
            keys.view(np.uint16).reshape(*lead, GROUP, cache.head_dim),
            values.view(np.uint16).reshape(*lead, GROUP, cache.value_dim),
            scales,
        )
    return Views(
        keys.reshape(*lead, kl, cache.head_dim // 4, GROUP, 4),
        values.view(np.int8).reshape(*lead, vl, GROUP // 4, cache.value_dim, 4),
        scales.view(np.float32).reshape(*lead, 2, GROUP),
    )


def limbs_of(x: F32, limbs: int) -> tuple[NDArray[Any], F32]:
    """A vector as limbs [limbs, dims], and its scale."""
    q = quantise(x[None], ActivationForm(limbs))
    return q.values[0, :, : len(x)], q.scales[0, 0]


def to_bfloat16(x: F32) -> NDArray[Any]:
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: NDArray[Any]) -> F32:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def kv_write(cache: KvCache, keys: F32, values: F32, slots: NDArray[np.int64]) -> None:
    to = views(cache)
    for row, slot in enumerate(slots):
        if slot < 0:
            continue
        block, offset = divmod(int(slot), cache.block_size)
        group, token = divmod(offset, GROUP)
        for head in range(cache.kv_heads):
            at = (block, head, group)
            if cache.form == KvForm.BFLOAT16:
                to.keys[at][token] = to_bfloat16(keys[row, head])
                to.values[at][token] = to_bfloat16(values[row, head])
                continue
            kl, vl = INTEGER_LIMBS[cache.form]
            k, to.scales[at][0, token] = limbs_of(keys[row, head], kl)
            v, to.scales[at][1, token] = limbs_of(values[row, head], vl)
            to.keys[at][:, :, token] = (k.astype(np.int32) + 128).reshape(kl, -1, 4)
            to.values[at][:, token // 4, :, token % 4] = v


def kv_copy(cache: KvCache, pairs: NDArray[np.int64]) -> None:
    for source, target in pairs:
        cache.data[target] = cache.data[source]


@dataclass(frozen=True)
class Tokens:
    """A request's keys and values for a kv head, by position."""

    keys: NDArray[Any]  # integer forms: int64 [limb, token, dim]; bfloat16: float32 [token, dim]
    values: NDArray[Any]
    key_scales: F32
    value_scales: F32


def read(cache: KvCache, blocks: NDArray[np.int64], head: int) -> Tokens:
    """The tokens of these blocks, concatenated."""
    v = views(cache)
    keys, values, scales = v.keys[blocks, head], v.values[blocks, head], v.scales[blocks, head]
    if cache.form == KvForm.BFLOAT16:
        none = np.zeros(0, np.float32)
        k, w = from_bfloat16(keys).reshape(-1, cache.head_dim), from_bfloat16(values).reshape(-1, cache.value_dim)
        return Tokens(k, w, none, none)
    kl, vl = INTEGER_LIMBS[cache.form]
    # [block, group, limb, dim / 4, token, 4] -> [limb, block, group, token, dim / 4, 4]
    k = keys.transpose(2, 0, 1, 4, 3, 5).reshape(kl, -1, cache.head_dim).astype(np.int64) - 128
    # [block, group, limb, token / 4, dim, 4] -> [limb, block, group, token / 4, 4, dim]
    w = values.transpose(2, 0, 1, 3, 5, 4).reshape(vl, -1, cache.value_dim).astype(np.int64)
    return Tokens(k, w, scales[:, :, 0].reshape(-1), scales[:, :, 1].reshape(-1))
