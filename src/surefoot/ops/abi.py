"""The C ABI as ctypes sees it: one Structure per operation, field for field as in native/include/surefoot.h.

`LinearArgs` is the header's `sf_linear_args`, `KvCacheStruct` its `sf_kv_cache`.
`Backend` compares every Structure's size with the library's own, so a struct that drifted fails at load.
"""

from ctypes import Structure, addressof, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any

PTR = c_void_p
STOPPED = 9  # the only error that Python knows by number


def _fields(**fields: type[Any]) -> list[tuple[str, type[Any]]]:
    """Field names with their types, in the order written."""
    return list(fields.items())


def address(array: Any | None) -> int | None:
    """Where a ctypes array starts; None stays None."""
    return None if array is None else addressof(array)


class ActivationsStruct(Structure):
    _fields_ = _fields(values=PTR, scales=PTR, stride=c_int64, limbs=c_int32, group=c_int32)


class QuantiseArgs(Structure):
    _fields_ = _fields(x=PTR, rows=c_int64, cols=c_int64, x_stride=c_int64, out=ActivationsStruct)


class PackArgs(Structure):
    _fields_ = _fields(
        codes=PTR, scales=PTR, offsets=PTR, row_scales=PTR, table=PTR,
        n=c_int64, k=c_int64, first=c_int64, rows=c_int64,
        bits=c_int32, limbs=c_int32, group=c_int32, packed=PTR, packed_bytes=c_int64,
    )  # fmt: skip


class BitFieldStruct(Structure):
    _fields_ = _fields(offset=c_int32, width=c_int32, run=c_int32, unused=c_int32)


class PackBlocksArgs(Structure):
    _fields_ = _fields(
        blocks=PTR, scales=PTR, offsets=PTR, super_scales=PTR, super_offsets=PTR, group_scales=PTR, group_offsets=PTR,
        table=PTR, packed=PTR, packed_bytes=c_int64,
        n=c_int64, k=c_int64, first=c_int64, rows=c_int64, row_stride=c_int64, low=BitFieldStruct, high=BitFieldStruct,
        block=c_int32, block_bytes=c_int32, group=c_int32, add=c_int32, stretch=c_int32, centre=c_int32,
        width=c_int32, scale_bits=c_int32, power=c_int32, unused=c_int32, span_low=c_float, span_high=c_float,
    )  # fmt: skip


class LinearArgs(Structure):
    _fields_ = _fields(
        x=ActivationsStruct, weights=PTR, bias=PTR, residual=PTR, y=PTR,
        rows=c_int64, cols=c_int64, y_stride=c_int64, residual_stride=c_int64,
    )  # fmt: skip


class LinearExpertsArgs(Structure):
    _fields_ = _fields(
        x=ActivationsStruct, weights=PTR, biases=PTR, starts=PTR, y=PTR, experts=c_int64, cols=c_int64, y_stride=c_int64
    )


class FloatLinearArgs(Structure):
    _fields_ = _fields(
        x=PTR, w=PTR, bias=PTR, y=PTR, rows=c_int64, n=c_int64, k=c_int64,
        x_stride=c_int64, w_stride=c_int64, y_stride=c_int64, dtype=c_int32, unused=c_int32,
    )  # fmt: skip


class EmbedArgs(Structure):
    _fields_ = _fields(
        ids=PTR, table=PTR, y=PTR, rows=c_int64, vocab=c_int64, cols=c_int64, y_stride=c_int64,
        dtype=c_int32, scale=c_float,
    )  # fmt: skip


class NormArgs(Structure):
    _fields_ = _fields(
        x=PTR, residual=PTR, weight=PTR, bias=PTR, h=PTR, y=PTR, quantised=ActivationsStruct,
        rows=c_int64, cols=c_int64, x_stride=c_int64, residual_stride=c_int64, h_stride=c_int64, y_stride=c_int64,
        eps=c_float, weight_offset=c_float, kind=c_int32, heads=c_int32,
    )  # fmt: skip


class RopeTableArgs(Structure):
    _fields_ = _fields(
        positions=PTR, inv_freq=PTR, cos=PTR, sin=PTR, row_scales=PTR, rows=c_int64, pairs=c_int64, scale=c_float,
        unused=c_int32,
    )  # fmt: skip


class RopeArgs(Structure):
    _fields_ = _fields(
        x=PTR, cos=PTR, sin=PTR, rows=c_int64, heads=c_int64, head_dim=c_int64, pairs=c_int64, x_stride=c_int64,
        pairing=c_int32, unused=c_int32,
    )  # fmt: skip


class GluArgs(Structure):
    _fields_ = _fields(
        gate=PTR, up=PTR, y=PTR, quantised=ActivationsStruct,
        rows=c_int64, cols=c_int64, gate_stride=c_int64, up_stride=c_int64, y_stride=c_int64,
        kind=c_int32, limit=c_float, alpha=c_float, unused=c_int32,
    )  # fmt: skip


class SoftcapArgs(Structure):
    _fields_ = _fields(x=PTR, y=PTR, count=c_int64, cap=c_float, unused=c_int32)


class AddArgs(Structure):
    _fields_ = _fields(a=PTR, b=PTR, y=PTR, count=c_int64, scale=c_float, unused=c_int32)


class ElementaryArgs(Structure):
    _fields_ = _fields(x=PTR, y=PTR, count=c_int64, function=c_int32, unused=c_int32)


class KvCacheStruct(Structure):
    _fields_ = _fields(
        data=PTR, num_blocks=c_int64, block_size=c_int64, kv_heads=c_int64, head_dim=c_int64, value_dim=c_int64,
        form=c_int32, unused=c_int32,
    )  # fmt: skip


class KvWriteArgs(Structure):
    _fields_ = _fields(
        cache=KvCacheStruct, keys=PTR, values=PTR, slots=PTR, rows=c_int64, keys_stride=c_int64, values_stride=c_int64
    )


class KvCopyArgs(Structure):
    _fields_ = _fields(cache=KvCacheStruct, pairs=PTR, count=c_int64)


class AttentionArgs(Structure):
    _fields_ = _fields(
        cache=KvCacheStruct, q=PTR, y=PTR, starts=PTR, lengths=PTR, block_table=PTR, sinks=PTR, slopes=PTR,
        chunks=c_int64, heads=c_int64, q_stride=c_int64, y_stride=c_int64, table_stride=c_int64,
        window=c_int64, scale=c_float, softcap=c_float, fixed=c_int32, unused=c_int32,
    )  # fmt: skip


class StateRowsStruct(Structure):
    _fields_ = _fields(starts=PTR, loads=PTR, saves=PTR, rows=c_int64, chunks=c_int64, slots=c_int64)


class ShortConvArgs(Structure):
    _fields_ = _fields(
        rows=StateRowsStruct, x=PTR, gate_in=PTR, gate_out=PTR, weight=PTR, bias=PTR, state=PTR, y=PTR,
        cols=c_int64, taps=c_int64, x_stride=c_int64, y_stride=c_int64, silu=c_int32, unused=c_int32,
    )  # fmt: skip


class DeltaGatesArgs(Structure):
    _fields_ = _fields(
        a=PTR, b=PTR, rate=PTR, bias=PTR, decay=PTR, beta=PTR,
        rows=c_int64, decays=c_int64, betas=c_int64, a_stride=c_int64, b_stride=c_int64,
    )  # fmt: skip


class DeltaRuleArgs(Structure):
    _fields_ = _fields(
        rows=StateRowsStruct, q=PTR, k=PTR, v=PTR, decay=PTR, beta=PTR, state=PTR, y=PTR,
        key_heads=c_int64, heads=c_int64, key_dim=c_int64, value_dim=c_int64, qkv_stride=c_int64, y_stride=c_int64,
        tiled=c_int32, by_lane=c_int32,
    )  # fmt: skip


class SsdGatesArgs(Structure):
    _fields_ = _fields(x=PTR, rate=PTR, bias=PTR, decay=PTR, dt=PTR, rows=c_int64, heads=c_int64, x_stride=c_int64)


class SsdScanArgs(Structure):
    _fields_ = _fields(
        rows=StateRowsStruct, x=PTR, b=PTR, c=PTR, decay=PTR, dt=PTR, skip=PTR, state=PTR, y=PTR,
        groups=c_int64, heads=c_int64, state_dim=c_int64, head_dim=c_int64, x_stride=c_int64, y_stride=c_int64,
    )  # fmt: skip


class GatedNormArgs(Structure):
    _fields_ = _fields(
        x=PTR, gate=PTR, weight=PTR, y=PTR, quantised=ActivationsStruct, rows=c_int64, cols=c_int64, groups=c_int64,
        x_stride=c_int64, gate_stride=c_int64, y_stride=c_int64, eps=c_float, unused=c_int32,
    )  # fmt: skip


class SparsifyArgs(Structure):
    _fields_ = _fields(x=PTR, rows=c_int64, cols=c_int64, x_stride=c_int64, spreads=c_float, unused=c_int32)


class MatchRmsArgs(Structure):
    _fields_ = _fields(
        x=PTR, y=PTR, rows=c_int64, cols=c_int64, x_stride=c_int64, y_stride=c_int64, least=c_float, unused=c_int32,
    )  # fmt: skip


class RouteArgs(Structure):
    _fields_ = _fields(
        logits=PTR, bias=PTR, expert_scales=PTR, ids=PTR, weights=PTR, rows=c_int64, experts=c_int64, k=c_int64,
        groups=c_int64, kept_groups=c_int64, scoring=c_int32, normalise=c_int32, scale=c_float, group_best=c_int32,
    )  # fmt: skip


class GroupExpertsArgs(Structure):
    _fields_ = _fields(ids=PTR, sources=PTR, starts=PTR, places=PTR, rows=c_int64, k=c_int64, experts=c_int64)


class CombineArgs(Structure):
    _fields_ = _fields(
        x=PTR, places=PTR, weights=PTR, residual=PTR, y=PTR, rows=c_int64, cols=c_int64, k=c_int64, x_rows=c_int64,
        x_stride=c_int64, residual_stride=c_int64, y_stride=c_int64,
    )  # fmt: skip


class SampleArgs(Structure):
    _fields_ = _fields(
        logits=PTR, temperature=PTR, top_p=PTR, min_p=PTR, top_k=PTR, seeds=PTR, positions=PTR, tokens=PTR,
        logprobs=PTR, rows=c_int64, vocab=c_int64, logits_stride=c_int64,
    )  # fmt: skip


class TopLogprobsArgs(Structure):
    _fields_ = _fields(
        logits=PTR, ids=PTR, logprobs=PTR, rows=c_int64, vocab=c_int64, logits_stride=c_int64, count=c_int64
    )


class ReadBandwidthArgs(Structure):
    _fields_ = _fields(data=PTR, bytes=c_int64, repeats=c_int64, seconds=c_double)


class PeakArgs(Structure):
    _fields_ = _fields(iterations=c_int64, operations=c_double, seconds=c_double, kind=c_int32, unused=c_int32)


class Call(Structure):
    _fields_ = _fields(op=c_int32, unused=c_int32, args=PTR)


OPERATIONS: dict[str, type[Structure]] = {
    "quantise": QuantiseArgs,
    "elementary": ElementaryArgs,
    "norm": NormArgs,
    "rope_table": RopeTableArgs,
    "rope": RopeArgs,
    "glu": GluArgs,
    "softcap": SoftcapArgs,
    "add": AddArgs,
    "embed": EmbedArgs,
    "pack": PackArgs,
    "pack_blocks": PackBlocksArgs,
    "linear": LinearArgs,
    "linear_experts": LinearExpertsArgs,
    "read_bandwidth": ReadBandwidthArgs,
    "peak": PeakArgs,
    "float_linear": FloatLinearArgs,
    "route": RouteArgs,
    "group_experts": GroupExpertsArgs,
    "combine": CombineArgs,
    "sample": SampleArgs,
    "top_logprobs": TopLogprobsArgs,
    "kv_write": KvWriteArgs,
    "kv_copy": KvCopyArgs,
    "attention": AttentionArgs,
    "short_conv": ShortConvArgs,
    "delta_gates": DeltaGatesArgs,
    "delta_rule": DeltaRuleArgs,
    "ssd_gates": SsdGatesArgs,
    "ssd_scan": SsdScanArgs,
    "gated_norm": GatedNormArgs,
    "sparsify": SparsifyArgs,
    "match_rms": MatchRmsArgs,
}
