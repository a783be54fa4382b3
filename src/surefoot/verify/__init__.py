"""Checks a model's exactness on this machine: requests alone and under hostile conditions, bit for bit."""

from surefoot.verify.conditions import ALL, HOSTILE, QUICK, TOGETHER, Condition, on_variants
from surefoot.verify.findings import Finding, differences
from surefoot.verify.verifier import Verifier

__all__ = [
    "ALL",
    "HOSTILE",
    "QUICK",
    "TOGETHER",
    "Condition",
    "Finding",
    "Verifier",
    "differences",
    "on_variants",
]
