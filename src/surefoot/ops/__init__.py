"""Numerics: typed operations over numpy arrays, native in every variant, each with a numpy oracle."""

from surefoot.ops.activations import ONE_LIMB, TWO_LIMBS, ActivationForm, Activations, empty_activations, quantise
from surefoot.ops.attention import Chunks, attention
from surefoot.ops.backend import Backend, OpError, Program, VariantError, supported_variants
from surefoot.ops.kv import KvCache, KvForm, empty_kv_cache, kv_copy, kv_write

__all__ = [
    "ONE_LIMB",
    "TWO_LIMBS",
    "ActivationForm",
    "Activations",
    "Backend",
    "Chunks",
    "KvCache",
    "KvForm",
    "OpError",
    "Program",
    "VariantError",
    "attention",
    "empty_activations",
    "empty_kv_cache",
    "kv_copy",
    "kv_write",
    "quantise",
    "supported_variants",
]
