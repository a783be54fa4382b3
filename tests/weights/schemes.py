"""Writers of quantised checkpoints' matrices: the parts as files hold them, and the weights that they stand for.

Written from the formats' definitions, in plain loops over words where the reader has arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.ops.arrays import F32, Array


@dataclass(frozen=True)
class Written:
    parts: dict[str, Array]  # by what follows the matrix's name
    weights: F32
    fp8: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Scheme:
    """A quantisation scheme of checkpoints."""

    config: dict[str, Any]  # quantization_config
    write: Callable[[F32], Written]
    exact: bool = True  # whether all of its codes are kept when read
    row_scale: bool = False  # whether a whole row shares a scale
    bits: int = 8  # of a code


def pack_words(codes: Array, bits: int, axis: int, order: tuple[int, ...] | None = None) -> Array:
    """Codes packed into 32-bit words along the axis, lowest bits first. order: the code at each place of a word."""
    count = 32 // bits
    order = order or tuple(range(count))
    codes = np.moveaxis(codes, axis, -1).astype(np.uint32)
    missing = -codes.shape[-1] % count
    codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], missing), np.uint32)], axis=-1)
    words = np.zeros((*codes.shape[:-1], codes.shape[-1] // count), np.uint32)
    for word in range(words.shape[-1]):
        for place, code in enumerate(order):
            words[..., word] |= codes[..., word * count + code] << np.uint32(place * bits)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


@dataclass(frozen=True)
class Codes:
    """A quantised matrix."""

    codes: Array  # [n, k]
    scales: Array  # [n, groups]
    zeros: Array  # [n, groups]
    weights: F32  # the values that the codes represent


def quantise(weights: F32, bits: int, group: int, symmetric: bool, group_of: Array | None = None) -> Codes:
    n, k = weights.shape
    group_of = np.arange(k) // group if group_of is None else group_of
    largest, middle, groups = 2**bits - 1, 2 ** (bits - 1), group_of.max() + 1
    scales, zeros = np.zeros((n, groups), np.float16), np.zeros((n, groups), np.int64)
    codes = np.zeros((n, k), np.int64)
    for g in range(groups):
        part = weights[:, group_of == g]
        low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
        span = 2 * np.maximum(-low, high) if symmetric else high - low
        scales[:, g] = span / largest
        scale = scales[:, g].astype(np.float32)
        zeros[:, g] = middle if symmetric else np.clip(np.rint(-low / scale), 0, largest)
        rounded = np.rint(part / scale[:, None]) + zeros[:, g, None]
        codes[:, group_of == g] = np.clip(rounded, 0, largest)
    wide = scales.astype(np.float64)[:, group_of]
    return Codes(codes, scales, zeros, (wide * (codes - zeros[:, group_of])).astype(np.float32))


def awq(group: int) -> Scheme:
    def write(weights: F32) -> Written:
        q, order = quantise(weights, 4, group, symmetric=False), (0, 2, 4, 6, 1, 3, 5, 7)
        parts = {
            "qweight": pack_words(q.codes.T, 4, 1, order),
            "qzeros": pack_words(q.zeros.T, 4, 1, order),
            "scales": q.scales.T,
        }
        return Written(parts, q.weights)

    return Scheme(
        {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}, write, bits=4
    )


def gptq(group: int, bits: int = 4, symmetric: bool = True, version: str = "gptq", act_order: bool = False) -> Scheme:
    def write(weights: F32) -> Written:
        k = weights.shape[1]
        group_of = np.arange(k) // group
        if act_order:
            group_of = np.random.default_rng(3).permutation(group_of)
        q = quantise(weights, bits, group, symmetric, group_of)
        zeros = (q.zeros - 1) % 2**bits if version == "gptq" else q.zeros
        parts = {
            "qweight": pack_words(q.codes.T, bits, 0),
            "qzeros": pack_words(zeros.T, bits, 1),
            "scales": q.scales.T,
            "g_idx": group_of.astype(np.int32),
        }
        return Written(parts, q.weights)

    # Only 255 of the 256 codes can be kept: a group with both ends loses its highest code.
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": symmetric}
    return Scheme({**config, "checkpoint_format": version}, write, exact=not act_order and bits < 8, bits=bits)


def compressed_packed(group: int, bits: int = 4, symmetric: bool = True, act_order: bool = False) -> Scheme:
    def write(weights: F32) -> Written:
        n, k = weights.shape
        group_of = np.arange(k) // (group or k)
        if act_order:
            group_of = np.random.default_rng(3).permutation(group_of)
        q = quantise(weights, bits, group or k, symmetric, group_of)
        parts = {
            "weight_packed": pack_words(q.codes, bits, 1),
            "weight_scale": q.scales,
            "weight_shape": np.array([n, k], np.int64),
        }
        if not symmetric:
            parts["weight_zero_point"] = pack_words(q.zeros, bits, 0)
        if act_order:
            parts["weight_g_idx"] = group_of.astype(np.int32)
        return Written(parts, q.weights)

    return Scheme(
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        write,
        exact=not act_order and bits < 8,
        bits=bits,
    )


def compressed_int8(group: int = 0, symmetric: bool = True, per_tensor: bool = False) -> Scheme:
    """int8 codes, scaled as compressed-tensors does: the largest weight of a row is 127.5, so that -128 occurs."""

    def write(weights: F32) -> Written:
        q = quantise(weights, 8, group or weights.shape[1], symmetric)
        codes, zeros, scales = q.codes - 128, q.zeros - 128, q.scales.astype(np.float32)
        represented = q.weights
        if per_tensor:
            scales = np.array([np.abs(weights).max() / 127], np.float32)
            codes = np.rint(weights / scales)
            represented = (codes * scales).astype(np.float32)
        parts = {"weight": codes.astype(np.int8), "weight_scale": scales}
        if not symmetric:
            parts["weight_zero_point"] = zeros.astype(np.int8)
        return Written(parts, represented)

    return Scheme(
        {"quant_method": "compressed-tensors", "format": "int-quantized"},
        write,
        exact=symmetric and not group,
        row_scale=not group,
    )


def e4m3_value(code: int) -> float:
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    return sign * ((1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6)


def fp8(block: tuple[int, int] | None, part: str = "weight_scale", method: str = "fp8", rows: bool = False) -> Scheme:
    """An FP8 scheme. block: rows and columns that share a scale; None: one scale per tensor. rows: a scale per row."""
    codes = [code for code in range(256) if code & 127 != 127]
    codes.sort(key=e4m3_value)
    values = np.array([e4m3_value(code) for code in codes])

    def write(weights: F32) -> Written:
        n, k = weights.shape
        row_block, column_block = (1, k) if rows else block or (n, k)
        scales = np.zeros((-(-n // row_block), -(-k // column_block)), np.float32)
        chosen, represented = np.zeros((n, k), np.uint8), np.zeros((n, k), np.float32)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                at = np.s_[i * row_block : (i + 1) * row_block, j * column_block : (j + 1) * column_block]
                scales[i, j] = np.abs(weights[at]).max() / 448
                nearest = np.abs(weights[at][..., None] / scales[i, j] - values).argmin(axis=-1)
                chosen[at] = np.array(codes, np.uint8)[nearest]
                represented[at] = values[nearest].astype(np.float32) * scales[i, j]
        shaped = scales if block or rows else scales.reshape(1)
        return Written({"weight": chosen, part: shaped}, represented, frozenset({"weight"}))

    options = {"weight_block_size": list(block)} if block and method == "fp8" else {}
    if method == "compressed-tensors":
        options = {"format": "float-quantized"}
    return Scheme({"quant_method": method, **options}, write, exact=False)


SCHEMES: dict[str, Scheme] = {
    "awq": awq(32),
    "gptq v1": gptq(32),
    "gptq v1 with zeros": gptq(32, symmetric=False),
    "gptq v2": gptq(32, symmetric=False, version="gptq_v2"),
    "gptq 8 bits": gptq(32, bits=8, symmetric=False),
    "gptq 2 bits": gptq(32, bits=2),
    "gptq act-order": gptq(32, symmetric=False, act_order=True),
    "w4a16": compressed_packed(32),
    "w4a16 with zeros": compressed_packed(32, symmetric=False),
    "w4a16 by row": compressed_packed(0),
    "w4a16 act-order": compressed_packed(32, act_order=True),
    "w8a16 packed": compressed_packed(32, bits=8),
    "w8a8": compressed_int8(),
    "w8a8 per tensor": compressed_int8(per_tensor=True),
    "w8a8 with zeros": compressed_int8(symmetric=False),
    "w8a16 groups": compressed_int8(32),
    "fp8 tensor": fp8(None),
    "fp8 rows": fp8(None, method="compressed-tensors", rows=True),
    "fp8 blocks": fp8((128, 128), "weight_scale_inv"),
}
