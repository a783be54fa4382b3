"""Numerics: typed operations over numpy arrays, native in every variant, each with a numpy oracle."""

from surefoot.ops.activations import ONE_LIMB, TWO_LIMBS, ActivationForm, Activations, empty_activations, quantise
from surefoot.ops.backend import Backend, OpError, Program, VariantError, supported_variants

__all__ = [
    "ONE_LIMB",
    "TWO_LIMBS",
    "ActivationForm",
    "Activations",
    "Backend",
    "OpError",
    "Program",
    "VariantError",
    "empty_activations",
    "quantise",
    "supported_variants",
]
