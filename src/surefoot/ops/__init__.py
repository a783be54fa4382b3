"""Numerics: typed operations over numpy arrays, native in every variant, each with a numpy oracle."""

from surefoot.ops.activations import ONE_LIMB, TWO_LIMBS, ActivationForm, Activations, empty_activations, quantise
from surefoot.ops.backend import Backend, OpError, Program, VariantError, supported_variants
from surefoot.ops.linear import linear, linear_experts
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
    "Program",
    "VariantError",
    "WeightFormat",
    "empty_activations",
    "linear",
    "linear_experts",
    "pack",
    "quantise",
    "supported_variants",
]
