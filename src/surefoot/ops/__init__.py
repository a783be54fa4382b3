"""Numerics: typed operations over numpy arrays, native in every variant, each with a numpy oracle."""

from surefoot.ops.activations import ONE_LIMB, TWO_LIMBS, ActivationForm, Activations, empty_activations, quantise
from surefoot.ops.arrays import huge_empty
from surefoot.ops.backend import Backend, OpError, Program, VariantError, supported_variants
from surefoot.ops.linear import linear, linear_experts
from surefoot.ops.probe import PeakKind, best_peak, best_read_bandwidth, peak, read_bandwidth
from surefoot.ops.weights import IntegerWeights, PackedWeights, WeightFormat, pack

__all__ = [
    "ONE_LIMB",
    "TWO_LIMBS",
    "ActivationForm",
    "Activations",
    "Backend",
    "IntegerWeights",
    "OpError",
    "PackedWeights",
    "PeakKind",
    "Program",
    "VariantError",
    "WeightFormat",
    "best_peak",
    "best_read_bandwidth",
    "empty_activations",
    "huge_empty",
    "linear",
    "linear_experts",
    "pack",
    "peak",
    "quantise",
    "read_bandwidth",
    "supported_variants",
]
