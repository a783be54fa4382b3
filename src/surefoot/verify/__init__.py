"""Whether a model keeps the contract on this machine: the same requests alone and in hostile company, bit for bit."""

from surefoot.verify.conditions import ALL, HOSTILE, QUICK, TOGETHER, Condition, elsewhere
from surefoot.verify.verifier import Crowd, Difference, Finding, Verifier, differences

__all__ = [
    "ALL",
    "HOSTILE",
    "QUICK",
    "TOGETHER",
    "Condition",
    "Crowd",
    "Difference",
    "Finding",
    "Verifier",
    "differences",
    "elsewhere",
]
