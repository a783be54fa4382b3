"""Samples tokens from logits: one feature per file, over whole rows of logits where possible."""

from surefoot.sampling.grammar import GrammarError, Grammars, GrammarTimeout
from surefoot.sampling.logprobs import TokenLogprobs
from surefoot.sampling.sampler import Draw, Drawn, Sampler
from surefoot.sampling.seen import SeenTokens

__all__ = ["Draw", "Drawn", "GrammarError", "GrammarTimeout", "Grammars", "Sampler", "SeenTokens", "TokenLogprobs"]
