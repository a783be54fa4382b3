"""Speculative decoding: drafters that guess how a text continues, and how many tokens to draft. The runner verifies."""

from surefoot.speculate.controller import MAX_DEPTH, MAX_STEP_DRAFTS, DepthController, best_depths
from surefoot.speculate.drafter import NO_DRAFT, Drafter, DraftOffer, TargetRow
from surefoot.speculate.lookup import LookupDrafter, LookupFirst
from surefoot.speculate.speculator import DraftOutcome, SampledTokens, Speculator

__all__ = [
    "MAX_DEPTH",
    "MAX_STEP_DRAFTS",
    "NO_DRAFT",
    "DepthController",
    "DraftOffer",
    "DraftOutcome",
    "Drafter",
    "LookupDrafter",
    "LookupFirst",
    "SampledTokens",
    "Speculator",
    "TargetRow",
    "best_depths",
]
