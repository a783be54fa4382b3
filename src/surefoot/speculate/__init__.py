"""Drafts: guesses at how a text goes on, and how deep to guess. Whether they are right is the runner's to find."""

from surefoot.speculate.controller import MOST_DRAFTS, Controller, DepthChooser
from surefoot.speculate.drafter import Drafter, Prospect
from surefoot.speculate.lookup import Lookup
from surefoot.speculate.speculator import Speculator, Verified

__all__ = ["MOST_DRAFTS", "Controller", "DepthChooser", "Drafter", "Lookup", "Prospect", "Speculator", "Verified"]
