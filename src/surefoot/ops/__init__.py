"""Numerics: typed operations over numpy arrays, native in every variant, each with a numpy oracle."""

from surefoot.ops.activations import (
    ONE_LIMB,
    ONE_LIMB_ROWS,
    TWO_LIMBS,
    ActivationForm,
    Activations,
    empty_activations,
    quantise,
)
from surefoot.ops.arrays import Arena, huge_empty
from surefoot.ops.attention import Chunks, attention
from surefoot.ops.backend import Backend, OpError, Program, Stopped, VariantError, supported_variants
from surefoot.ops.elementwise import add, embed, softcap
from surefoot.ops.experts import ExpertRows, Router, Routes, Scoring, combine, group_by_expert, route
from surefoot.ops.float_linear import float_linear
from surefoot.ops.glu import GluForm, glu
from surefoot.ops.kv import KvCache, KvForm, empty_kv_cache, kv_copy, kv_write
from surefoot.ops.linear import linear, linear_experts
from surefoot.ops.norms import NormForm, norm, norm_heads
from surefoot.ops.probe import PeakKind, best_peak, best_read_bandwidth, peak, read_bandwidth
from surefoot.ops.rope import (
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    RopeForm,
    RopeTable,
    YarnScaling,
    attention_factor,
    inverse_frequencies,
    rope,
    rope_table,
)
from surefoot.ops.sampling import Sampled, Sampling, SamplingRows, TopLogprobs, sample, top_logprobs
from surefoot.ops.shaped import Shape, ShapedProgram, ShapeError, third_of
from surefoot.ops.weights import (
    BitField,
    BlockWeights,
    IntegerWeights,
    PackedWeights,
    WeightFormat,
    empty_packed,
    pack,
    pack_blocks,
    pack_rows,
)

__all__ = [
    "ONE_LIMB",
    "ONE_LIMB_ROWS",
    "TWO_LIMBS",
    "ActivationForm",
    "Activations",
    "Arena",
    "Backend",
    "BitField",
    "BlockWeights",
    "Chunks",
    "ExpertRows",
    "FactorScaling",
    "GluForm",
    "IntegerWeights",
    "KvCache",
    "KvForm",
    "LinearScaling",
    "Llama3Scaling",
    "NormForm",
    "OpError",
    "PackedWeights",
    "PeakKind",
    "Program",
    "RopeForm",
    "RopeTable",
    "Router",
    "Routes",
    "Sampled",
    "Sampling",
    "SamplingRows",
    "Scoring",
    "Shape",
    "ShapeError",
    "ShapedProgram",
    "Stopped",
    "TopLogprobs",
    "VariantError",
    "WeightFormat",
    "YarnScaling",
    "add",
    "attention",
    "attention_factor",
    "best_peak",
    "best_read_bandwidth",
    "combine",
    "embed",
    "empty_activations",
    "empty_kv_cache",
    "empty_packed",
    "float_linear",
    "glu",
    "group_by_expert",
    "huge_empty",
    "inverse_frequencies",
    "kv_copy",
    "kv_write",
    "linear",
    "linear_experts",
    "norm",
    "norm_heads",
    "pack",
    "pack_blocks",
    "pack_rows",
    "peak",
    "quantise",
    "read_bandwidth",
    "rope",
    "rope_table",
    "route",
    "sample",
    "softcap",
    "supported_variants",
    "third_of",
    "top_logprobs",
]
