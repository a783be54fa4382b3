"""Numerics: typed operations over numpy arrays, native in every variant, each with a numpy oracle."""

from surefoot.ops.activations import ONE_LIMB, TWO_LIMBS, ActivationForm, Activations, empty_activations, quantise
from surefoot.ops.arrays import huge_empty
from surefoot.ops.backend import Backend, OpError, Program, VariantError, supported_variants
from surefoot.ops.probe import PeakKind, best_peak, best_read_bandwidth, peak, read_bandwidth

__all__ = [
    "ONE_LIMB",
    "TWO_LIMBS",
    "ActivationForm",
    "Activations",
    "Backend",
    "OpError",
    "PeakKind",
    "Program",
    "VariantError",
    "best_peak",
    "best_read_bandwidth",
    "empty_activations",
    "huge_empty",
    "peak",
    "quantise",
    "read_bandwidth",
    "supported_variants",
]
