"""Samples tokens from logits: over whole rows of logits where possible."""

from surefoot.sampling.grammar import GrammarError, Grammars, GrammarTimeout
from surefoot.sampling.penalties import SeenTokens
from surefoot.sampling.sampler import Draw, Drawn, Sampler, TokenLogprobs

__all__ = ["Draw", "Drawn", "GrammarError", "GrammarTimeout", "Grammars", "Sampler", "SeenTokens", "TokenLogprobs"]
