"""Samples tokens from logits: over whole rows of logits where possible."""

from surefoot.sampling.grammar import GrammarError, Grammars, GrammarTimeout
from surefoot.sampling.sampler import Draw, Drawn, Sampler, SeenTokens, TokenLogprobs

__all__ = ["Draw", "Drawn", "GrammarError", "GrammarTimeout", "Grammars", "Sampler", "SeenTokens", "TokenLogprobs"]
