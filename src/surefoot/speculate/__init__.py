"""Drafts: guesses at how a text goes on, and how deep to guess. Whether they are right is the runner's to find."""

from surefoot.speculate.controller import MOST_DEPTH, MOST_DRAFTS, Controller, DepthChooser
from surefoot.speculate.drafter import NOTHING, Drafter, Prospect
from surefoot.speculate.lookup import Lookup
from surefoot.speculate.preferring import Preferring
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
    "Preferring",
    "Prospect",
    "Speculator",
    "Verified",
]
