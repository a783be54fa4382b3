"""Checks a model's exactness on this machine: requests alone and under hostile conditions, bit for bit."""

from surefoot.verify.conditions import ALL, HOSTILE, QUICK, TOGETHER, Condition, on_variants
from surefoot.verify.findings import Difference, Finding, differences
from surefoot.verify.verifier import ConditionedEngine, Verifier

__all__ = [
    "ALL",
    "HOSTILE",
    "QUICK",
    "TOGETHER",
    "Condition",
    "ConditionedEngine",
    "Difference",
    "Finding",
    "Verifier",
    "differences",
    "on_variants",
]
