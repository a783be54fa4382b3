"""Drafts: guesses at how a text continues, and how deep to guess. The runner verifies them."""

from surefoot.speculate.controller import MOST_DEPTH, MOST_DRAFTS, Controller, DepthChooser
from surefoot.speculate.drafter import NOTHING, Drafter, Prospect
from surefoot.speculate.lookup import Lookup
from surefoot.speculate.lookup_first import LookupFirst
from surefoot.speculate.speculator import Gain, Speculator, Verified

__all__ = [
    "MOST_DEPTH",
    "MOST_DRAFTS",
    "NOTHING",
    "Controller",
    "DepthChooser",
    "Drafter",
    "Gain",
    "Lookup",
    "LookupFirst",
    "Prospect",
    "Speculator",
    "Verified",
]
